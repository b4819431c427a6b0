"""The tags of TIFF files, which are those of EXIF data too."""

from __future__ import annotations

import struct

WIDTH, HEIGHT, ORIENTATION = 256, 257, 274
ENTRY_SIZE = 12
_SHORT, _LONG = 3, 4
_SIDEWAYS = range(5, 9)  # orientations that swap width and height


def byte_order(header: bytes) -> str | None:
    """For `struct`; None if this is no header of a TIFF file."""
    return {b"II*\0": "<", b"MM\0*": ">"}.get(header[:4])


def read_tags(entries: bytes, order: str) -> dict[int, int]:
    """The tags that hold one SHORT or LONG, of those that are needed here. The first of a tag counts."""
    entries = entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]
    found: dict[int, int] = {}
    for tag, kind, count, value in struct.iter_unpack(f"{order}HHI4s", entries):
        if tag in (WIDTH, HEIGHT, ORIENTATION) and kind in (_SHORT, _LONG) and count == 1:
            found.setdefault(tag, *struct.unpack_from(order + ("H" if kind == _SHORT else "I"), value))
    return found


def is_sideways(tags: dict[int, int]) -> bool:
    return tags.get(ORIENTATION) in _SIDEWAYS


def exif_is_sideways(exif: bytes) -> bool:
    """Whether the orientation swaps width and height. Damaged data is ignored, as by viewers."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = byte_order(exif)
    if order is None or len(exif) < 8:
        return False
    (start,) = struct.unpack_from(f"{order}I", exif, 4)
    if start + 2 > len(exif):
        return False
    (count,) = struct.unpack_from(f"{order}H", exif, start)
    return is_sideways(read_tags(exif[start + 2 : start + 2 + count * ENTRY_SIZE], order))
