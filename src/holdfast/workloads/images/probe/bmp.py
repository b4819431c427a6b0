"""BMP of Windows and OS/2: the size is in the header."""

from __future__ import annotations

import struct

from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally

_OS2_SIZE = 12  # of the header with 16-bit fields


def walk(buffer: StreamBuffer, tally: Tally) -> Walk:
    buffer.at += 14
    header = yield from buffer.take(12)
    if header[0] == _OS2_SIZE:
        width, height = struct.unpack_from("<HH", header, 4)
    else:
        width, height = struct.unpack_from("<Ii", header, 4)
    tally.resize(width, abs(height))  # negative: the rows are stored from the top down
