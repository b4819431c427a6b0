"""GIF: walks the blocks and counts the frames, as a decoder does: what is no block is passed over."""

from __future__ import annotations

import re
import struct

from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally

_BLOCK = re.compile(rb"[!,;]")
_EXTENSION, _IMAGE = b"!,"


def walk(buffer: StreamBuffer, tally: Tally) -> Walk:
    header = yield from buffer.take(13)
    tally.enlarge(*struct.unpack_from("<HH", header, 6))
    buffer.at += _palette_size(header[10])
    while True:
        kind = yield from buffer.find(_BLOCK)
        tally.count_parts()
        if kind == _IMAGE:
            yield from _frame(buffer, tally)
        elif kind == _EXTENSION:
            buffer.at += 1
        else:
            return
        yield from _skip_sub_blocks(buffer)


def _frame(buffer: StreamBuffer, tally: Tally) -> Walk:
    left, top, width, height, flags = struct.unpack("<4HB", (yield from buffer.take(9)))
    tally.enlarge(left + width, top + height)
    tally.count_frames(tally.frames + 1)
    buffer.at += _palette_size(flags) + 1


def _palette_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _skip_sub_blocks(buffer: StreamBuffer) -> Walk:
    """A loop without calls: a file of 50 MB has 200,000 sub-blocks, a hostile one many more."""
    while True:
        data, at = buffer.data, buffer.at
        end = len(data)
        while at < end and (size := data[at]):
            at += size + 1
        buffer.at = at + 1 if at < end else at
        if at < end:
            return
        yield
