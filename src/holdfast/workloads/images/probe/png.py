"""PNG and APNG: walks the chunks up to the image data; of an animation, to the end."""

from __future__ import annotations

import struct

from holdfast.workloads.images.probe.exif import exif_is_sideways
from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally


def walk(buffer: StreamBuffer, tally: Tally) -> Walk:
    buffer.at += 8
    announced = counted = 0  # frames
    while True:
        length, kind = struct.unpack(">I4s", (yield from buffer.take(8)))
        tally.count_parts()
        end = buffer.position + length + 4
        if kind == b"IHDR":
            tally.resize(*struct.unpack(">II", (yield from buffer.take(8))))
        elif kind == b"eXIf":
            tally.turn(exif_is_sideways((yield from buffer.take(length))))
        elif kind == b"acTL":
            (announced,) = struct.unpack(">I", (yield from buffer.take(4)))
        elif kind == b"fcTL":
            counted += 1
        if kind == b"IEND" or (kind == b"IDAT" and not announced):
            return
        if announced:
            tally.count_frames(max(announced, counted))
        buffer.skip_to(end)
