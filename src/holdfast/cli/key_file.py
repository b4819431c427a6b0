"""The option `--key-file`: writes a new key to a file that only its owner can read, instead of printing it."""

from __future__ import annotations

import argparse
import os

from holdfast.errors import Invalid


def add_key_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key-file",
        metavar="PATH",
        help="write the key to this new file, readable by its owner only, instead of printing it",
    )


def written_key(text: str, path: str | None) -> dict[str, str]:
    """Write the key to the file, if one is given; else return it for printing, under its JSON name."""
    if path is None:
        return {"apiKey": text}
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"{text}\n")
    return {}


def require_new_file(path: str | None) -> None:
    """Check the file before the key is created."""
    folder = os.path.dirname(path or "") or "."
    if path is not None and (os.path.lexists(path) or not os.access(folder, os.W_OK)):
        raise Invalid(f"cannot write the key: {path} exists already, or {folder} is not writable")
