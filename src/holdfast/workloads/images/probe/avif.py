"""AVIF, still or a sequence: walks the boxes of the file that lead to sizes, rotation and number of frames."""

from __future__ import annotations

import struct
from collections.abc import Generator

from holdfast.workloads.images.faults import UNSUPPORTED, ImageFault
from holdfast.workloads.images.probe.item_properties import ItemProperties
from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally

_FILE = b""
_FILE_END = 2**64  # no box reaches beyond it
# Only these boxes are entered, each in its parent alone: hostile nesting goes no deeper than this table.
_ENTERED = {
    _FILE: {b"meta", b"moov"},
    b"meta": {b"iprp"},
    b"iprp": {b"ipco"},
    b"moov": {b"trak"},
    b"trak": {b"mdia"},
    b"mdia": {b"minf"},
    b"minf": {b"stbl"},
}
_BRANDS = {b"avif", b"avis"}
_BRANDS_SIZE_MAX = 1024


def walk(buffer: StreamBuffer, tally: Tally) -> Walk:
    yield from _check_brands(buffer)
    properties = ItemProperties(tally)
    entered = [(_FILE, _FILE_END)]
    while entered:
        parent, parent_end = entered[-1]
        if buffer.position + 8 > parent_end:  # no room for another box
            buffer.skip_to(parent_end)
            entered.pop()
            continue
        tally.count_parts()
        kind, end = yield from _open_box(buffer, parent_end)
        if kind in _ENTERED.get(parent, ()):
            buffer.at += 4 if kind == b"meta" else 0  # its version and flags
            entered.append((kind, end))
        else:
            yield from _read_box(buffer, tally, properties, (parent, kind), end)
            buffer.skip_to(end)


def _check_brands(buffer: StreamBuffer) -> Walk:
    _, end = yield from _open_box(buffer, _FILE_END)
    brands = yield from buffer.take(min(end - buffer.position, _BRANDS_SIZE_MAX))
    if _BRANDS.isdisjoint(brands[at : at + 4] for at in range(0, len(brands), 4)):
        raise ImageFault(UNSUPPORTED, "the file is HEIF, but not AVIF; send AVIF or JPEG")
    buffer.skip_to(end)


def _open_box(buffer: StreamBuffer, parent_end: int) -> Generator[None, None, tuple[bytes, int]]:
    """Type and end of the next box. A size that cannot be means: up to the end of the parent."""
    start = buffer.position
    size, kind = struct.unpack(">I4s", (yield from buffer.take(8)))
    if size == 1:
        (size,) = struct.unpack(">Q", (yield from buffer.take(8)))
    fits = buffer.position <= start + size <= parent_end
    return kind, start + size if fits else parent_end


def _read_box(
    buffer: StreamBuffer, tally: Tally, properties: ItemProperties, path: tuple[bytes, bytes], end: int
) -> Walk:
    rest = end - buffer.position
    match path:
        case b"meta", b"pitm":
            properties.set_primary((yield from buffer.take(min(rest, 8))))
        case b"ipco", kind:
            properties.add(kind, (yield from buffer.take(min(rest, 12))))
        case b"iprp", b"ipma":
            properties.associate((yield from buffer.take(rest)))
        case b"trak", b"tkhd":
            header = yield from buffer.take(min(rest, 96))
            tally.grow(*_track_size(header))
        case b"stbl", b"stsz" | b"stz2":
            sizes = yield from buffer.take(min(rest, 12))
            samples = int.from_bytes(sizes[8:])  # one per frame
            tally.count_frames(max(tally.frames, samples))


def _track_size(header: bytes) -> tuple[int, int]:
    at = 88 if header[:1] == b"\1" else 76  # version 1 has longer times
    return int.from_bytes(header[at : at + 2]), int.from_bytes(header[at + 4 : at + 6])
