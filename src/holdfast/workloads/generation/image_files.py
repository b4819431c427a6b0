"""The structure of PNG, JPEG and WebP files: what they announce, and where they end, before anything is decoded."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

_PARTS_MAX = 20_000  # chunks and segments; the largest image in parts of 4 KiB has 8,192
_SCANS_MAX = 32  # of a progressive JPEG, each over all pixels; encoders make about ten
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_FRAME_HEADERS = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # of a JPEG: SOF0 to SOF15
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")  # of a JPEG; others have no segment, or are image data
_ANIMATION = {b"acTL", b"fcTL", b"fdAT", b"ANIM", b"ANMF"}
_HAS_ANIMATION = 0x02  # a flag of VP8X


class ImageFormat(NamedTuple):
    """`name`: that of Pillow's plug-in."""

    name: str
    content_type: str
    suffix: str


class MalformedImage(Exception):
    pass


def announced(data: bytes) -> tuple[ImageFormat, int, int]:
    """What the file is, its width and its height. Raises MalformedImage, also if anything follows the image."""
    for begins, kind, read in _KINDS:
        if begins(data):
            try:
                return kind, *read(data)
            except (struct.error, IndexError):
                raise MalformedImage(f"the {kind.name} file is truncated") from None
    raise MalformedImage("it is neither PNG nor JPEG nor WebP" if data else "it is empty")


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR":
        raise MalformedImage("the PNG file has no header")
    kinds = [kind for kind, _ in _checked(_png_chunks(data), data)]
    if kinds.count(b"IHDR") != 1 or b"IEND" in kinds[:-1] or kinds[-1] != b"IEND":
        raise MalformedImage("the PNG file is truncated, or something follows the image")
    return struct.unpack_from(">II", data, 16)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    at = len(_PNG_SIGNATURE)
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        yield kind, at + 8
        at += 12 + size
    _ends_at(at, data)


def _webp(data: bytes) -> tuple[int, int]:
    (size,) = struct.unpack_from("<I", data, 4)
    _ends_at(8 + size + size % 2, data)
    sizes = [_WEBP_SIZES[kind](data, at) for kind, at in _checked(_webp_chunks(data), data) if kind in _WEBP_SIZES]
    if len(set(sizes)) != 1:
        raise MalformedImage("the WebP file has no image, or another size than it announces")
    return sizes[0]


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    at = 12
    while at < len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        yield kind, at + 8
        at += 8 + size + size % 2
    _ends_at(at, data)


def _lossy(data: bytes, at: int) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, at + 6)
    return width & 0x3FFF, height & 0x3FFF


def _lossless(data: bytes, at: int) -> tuple[int, int]:
    (bits,) = struct.unpack_from("<I", data, at + 1)
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _canvas(data: bytes, at: int) -> tuple[int, int]:
    if data[at] & _HAS_ANIMATION:
        raise MalformedImage("it is an animation")
    return int.from_bytes(data[at + 4 : at + 7], "little") + 1, int.from_bytes(data[at + 7 : at + 10], "little") + 1


def _jpeg(data: bytes) -> tuple[int, int]:
    frames, scans = [], 0
    for kind, at in _checked(_jpeg_segments(data), data):
        if kind[0] in _FRAME_HEADERS:
            frames.append(struct.unpack_from(">HH", data, at + 3))
        scans += kind[0] == _START_OF_SCAN
    if len(frames) != 1 or not 0 < scans <= _SCANS_MAX:
        raise MalformedImage(f"the JPEG file has {len(frames)} frames with {scans} scans")
    height, width = frames[0]
    return width, height


def _jpeg_segments(data: bytes) -> Iterator[tuple[bytes, int]]:
    at = 2
    while found := _MARKER.search(data, at):
        at = found.end()
        if found[1][0] == _END_OF_IMAGE:
            return _ends_at(at, data)
        yield found[1], at
        at += struct.unpack_from(">H", data, at)[0]
    raise MalformedImage("the JPEG file is truncated")


def _checked(parts: Iterator[tuple[bytes, int]], data: bytes) -> Iterator[tuple[bytes, int]]:
    for number, (kind, at) in enumerate(parts):
        if kind in _ANIMATION:
            raise MalformedImage("it is an animation")
        if number >= _PARTS_MAX:
            raise MalformedImage(f"it has more than {_PARTS_MAX} parts")
        yield kind, at


def _ends_at(end: int, data: bytes) -> None:
    if end > len(data):
        raise MalformedImage("it is truncated")
    if end < len(data):
        raise MalformedImage(f"{len(data) - end} bytes follow the image")


_WEBP_SIZES = {b"VP8 ": _lossy, b"VP8L": _lossless, b"VP8X": _canvas}
_KINDS: tuple[tuple[Callable[[bytes], bool], ImageFormat, Callable[[bytes], tuple[int, int]]], ...] = (
    (lambda data: data.startswith(_PNG_SIGNATURE), ImageFormat("PNG", "image/png", ".png"), _png),
    (lambda data: data.startswith(b"\xff\xd8\xff"), ImageFormat("JPEG", "image/jpeg", ".jpg"), _jpeg),
    (lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP", ImageFormat("WEBP", "image/webp", ".webp"), _webp),
)
