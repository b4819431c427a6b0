"""The same picture and variant give the same bytes: at another time, in another order, in another process."""

import hashlib
import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from holdfast.workloads.images import picture as module
from holdfast.workloads.images.picture import Picture
from holdfast.workloads.images.variants import Variant, checked, variants_json
from tests.workloads.images.test_picture import FORMATS, LIMITS, file_of, quarters, render, smooth
from tests.workloads.images.test_picture_animation import animation, wandering
from tests.workloads.images.test_picture_colors import swapped
from tests.workloads.images.test_picture_metadata import exif

VARIANTS = checked(
    [
        variant
        for form in FORMATS
        for variant in (
            Variant(form, width=40),
            Variant(form, width=2000),
            Variant(form, width=40, height=40, fit="cover"),
            Variant(form, width=40, height=60, fit="contain", quality=30),
            Variant(form, width=40, quality=90, name=f"fine.{form}"),
        )
    ]
)
STILLS = {
    "jpeg": file_of(smooth(320, 200), "JPEG", exif=exif(6), icc_profile=swapped()),
    "cmyk": file_of(smooth(60, 40).convert("CMYK"), "JPEG"),
    "png": file_of(wandering("RGBA")[1], "PNG", icc_profile=swapped()),
    "palette": file_of(quarters().quantize(4), "GIF"),
    "grey": file_of(smooth(64, 48).convert("L").convert("I;16"), "PNG"),
}
MOVING = {
    kind: animation(kind, wandering(mode))
    for kind, mode in zip(("GIF", "PNG", "WEBP", "AVIF"), ("RGBA", "RGBA", "RGB", "RGBA"), strict=True)
}
SOURCES = STILLS | MOVING
IN_ANOTHER_PROCESS = """
import hashlib, json, os, sys
from pathlib import Path
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.picture import Picture
from holdfast.workloads.images.variants import read_variants

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
limits, variants = ImageLimits(*map(int, sys.argv[1].split())), read_variants(sys.argv[2])
for path in sys.argv[3:]:
    picture = Picture.open(Path(path), limits, largest=variants)
    found = {each.name: hashlib.sha256(picture.render(each).data).hexdigest() for each in variants}
    print(json.dumps([found, picture.fingerprint()]))
"""


def opened(name: str) -> Picture:
    return Picture.open(SOURCES[name], LIMITS, largest=VARIANTS)


def rendered(picture: Picture, variants: list[Variant] = VARIANTS) -> dict[str, bytes]:
    return {variant.name: picture.render(variant).data for variant in variants}


@pytest.fixture(scope="module")
def bytes_of() -> dict[str, dict[str, bytes]]:
    return {name: rendered(opened(name)) for name in SOURCES}


@pytest.mark.parametrize("name", SOURCES)
def test_rendered_again(name: str, bytes_of: dict[str, dict[str, bytes]]) -> None:
    picture = opened(name)
    assert rendered(picture) == rendered(picture) == bytes_of[name]


@pytest.mark.parametrize("name", SOURCES)
def test_rendered_in_another_order(name: str, bytes_of: dict[str, dict[str, bytes]]) -> None:
    for seed in range(3):
        picture, variants = opened(name), random.Random(seed).sample(VARIANTS, len(VARIANTS))
        picture.fingerprint()
        assert rendered(picture, variants) == bytes_of[name]


@pytest.mark.parametrize("name", SOURCES)
def test_rendered_alone(name: str, bytes_of: dict[str, dict[str, bytes]]) -> None:
    """As when a job is tried again, and some variants are already stored."""
    for variant in VARIANTS[::3]:
        assert opened(name).render(variant).data == bytes_of[name][variant.name]


@pytest.mark.parametrize("name", STILLS)
def test_rendered_without_memory_for_resized_pictures(
    name: str, bytes_of: dict[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT_PIXELS", 2000)
    picture = opened(name)
    for variant in [*VARIANTS, *VARIANTS]:
        found = picture.render(variant)
        assert found.data == bytes_of[name][variant.name]
        assert picture._pixels_kept() <= max(2000, found.width * found.height)


def test_rendered_for_the_same_variants_in_another_order(bytes_of: dict[str, dict[str, bytes]]) -> None:
    picture = Picture.open(SOURCES["jpeg"], LIMITS, largest=VARIANTS[::-1])
    assert rendered(picture) == bytes_of["jpeg"]


def test_rendered_in_another_process_on_one_processor(tmp_path: Path) -> None:
    """The large picture is one whose AVIF has more tiles when more threads may write it."""
    large = file_of(smooth(1100, 600), "BMP")
    variants = [*VARIANTS, Variant("avif", "large.avif", width=1100)]
    expected, paths = [], []
    for name, data in {**SOURCES, "large": large}.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(data)
        picture = Picture.open(data, LIMITS, largest=variants)
        hashes = {name: hashlib.sha256(found).hexdigest() for name, found in rendered(picture, variants).items()}
        expected.append([hashes, [*picture.fingerprint()]])
    limits = " ".join(map(str, LIMITS))
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, limits, variants_json(variants), *map(str, paths)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line) for line in ended.stdout.splitlines()] == expected


# --- The times in an animated AVIF


def boxes(data: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[str, bytes]]:
    """All boxes, in the order of the file, with the path to each."""
    end = len(data) if end is None else end
    while at < end:
        size, kind = struct.unpack_from(">I4s", data, at)
        assert 8 <= size <= end - at
        yield kind.decode(), data[at + 8 : at + size]
        if kind in (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts"):
            yield from boxes(data, at + 8, at + size)
        at += size
    assert at == end


def times_of(data: bytes) -> list[tuple[str, int, int]]:
    """When each track was created and changed."""
    found = []
    for kind, content in boxes(data):
        if kind in ("mvhd", "tkhd", "mdhd"):
            created, changed = struct.unpack_from(">QQ" if content[0] == 1 else ">II", content, 4)
            found.append((kind, created, changed))
    return found


def test_pillow_writes_the_time_into_an_animated_avif() -> None:
    """Which makes the next tests worth their lines."""
    assert all(created > 0 for _, created, _ in times_of(MOVING["AVIF"]))


@pytest.mark.parametrize("name", MOVING)
def test_no_time_is_in_an_animated_avif(name: str) -> None:
    times = times_of(render(MOVING[name], "avif").data)
    tracks = 1 if name == "WEBP" else 2  # the second has the transparency
    assert sorted(kind for kind, _, _ in times) == sorted(["mvhd", *["tkhd", "mdhd"] * tracks])
    assert {time[1:] for time in times} == {(0, 0)}


def test_only_the_times_are_changed() -> None:
    """The rest of each header is as libavif wrote it."""
    ours, pillows = render(MOVING["AVIF"], "avif").data, MOVING["AVIF"]
    assert [kind for kind, _ in boxes(ours)] == [kind for kind, _ in boxes(pillows)]
    for (kind, content), (_, as_written) in zip(boxes(ours), boxes(pillows), strict=True):
        if kind in ("mvhd", "tkhd", "mdhd"):
            after = 4 + (16 if content[0] == 1 else 8)
            assert content[:4] == as_written[:4]
            assert content[after:] == as_written[after:]


def test_an_animated_avif_plays_forever() -> None:
    source = animation("GIF", wandering(), loop=1)
    [header] = [content for kind, content in boxes(render(source, "avif").data) if kind == "tkhd"]
    assert header[0] == 1
    assert struct.unpack_from(">Q", header, 28) == (2**64 - 1,)


def test_a_still_avif_has_no_tracks() -> None:
    assert times_of(render(file_of(Image.new("RGB", (8, 8)), "PNG"), "avif").data) == []
