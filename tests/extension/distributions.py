"""Installed distributions with extensions, as pip leaves them."""

from pathlib import Path


def install(place: Path, **manifests: str) -> None:
    """One for each extension: the reference of its manifest by its name."""
    for name, manifest in manifests.items():
        info = place / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[holdfast.extensions]\n{name} = {manifest}\n")
