"""TIFF: follows the chain of directories (IFDs), one per page, as far as it leads forward."""

from __future__ import annotations

import struct

from holdfast.workloads.images.probe import exif
from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally


def walk(buffer: StreamBuffer, tally: Tally) -> Walk:
    header = yield from buffer.take(8)
    order = "<" if header[0] == ord("I") else ">"
    (offset,) = struct.unpack_from(f"{order}I", header, 4)
    pages = 0
    while offset >= buffer.position:
        pages += 1
        tally.check_frames(pages)  # pages are not an animation, but each costs work
        buffer.skip_to(offset)
        count = struct.unpack(f"{order}H", (yield from buffer.take(2)))[0]
        end = buffer.position + count * exif.ENTRY_SIZE
        if pages == 1:
            yield from _first_page(buffer, tally, order, end)
        buffer.skip_to(end)
        (offset,) = struct.unpack(f"{order}I", (yield from buffer.take(4)))


def _first_page(buffer: StreamBuffer, tally: Tally, order: str, end: int) -> Walk:
    tags: dict[int, int] = {}
    while buffer.position < end:
        tags = exif.read_tags((yield from buffer.take(exif.ENTRY_SIZE)), order) | tags
        if exif.WIDTH in tags and exif.HEIGHT in tags:  # the directory may be truncated
            tally.resize(tags[exif.WIDTH], tags[exif.HEIGHT])
            tally.turn(exif.is_sideways(tags))
