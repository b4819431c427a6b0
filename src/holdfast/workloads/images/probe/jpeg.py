"""JPEG: walks the segments up to the image data."""

from __future__ import annotations

import re
import struct

from holdfast.workloads.images.probe.exif import exif_is_sideways
from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally

# What lies between segments is passed over, as decoders do; so are the markers without a segment.
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
_FRAME_HEADERS = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15
_END_OF_IMAGE, _START_OF_SCAN, _APP1 = 0xD9, 0xDA, 0xE1


def walk(buffer: StreamBuffer, tally: Tally) -> Walk:
    oriented = False
    while True:
        marker = yield from buffer.find(_MARKER)
        tally.count_parts()
        if marker in (_END_OF_IMAGE, _START_OF_SCAN):
            return
        (size,) = struct.unpack(">H", (yield from buffer.take(2)))
        end = buffer.position + size - 2
        if marker in _FRAME_HEADERS:
            _, height, width = struct.unpack(">BHH", (yield from buffer.take(5)))
            tally.resize(width, height)
        elif marker == _APP1 and not oriented:
            segment = yield from buffer.take(size - 2)
            if oriented := segment.startswith(b"Exif\0\0"):
                tally.turn(exif_is_sideways(segment))
        buffer.skip_to(end)
