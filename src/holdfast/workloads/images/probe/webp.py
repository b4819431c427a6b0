"""WebP: the size is in the first chunk; frames and EXIF data are in later chunks."""

from __future__ import annotations

import struct
from collections.abc import Callable

from holdfast.workloads.images.probe.exif import exif_is_sideways
from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally

_HAS_EXIF = 0x08  # a flag of VP8X; without it decoders ignore the chunk


def walk(buffer: StreamBuffer, tally: Tally) -> Walk:
    _, riff_size = struct.unpack_from("<4sI", (yield from buffer.take(12)))
    flags = 0
    while buffer.position < 8 + riff_size:
        kind, size = struct.unpack("<4sI", (yield from buffer.take(8)))
        tally.count_parts()
        end = buffer.position + size + size % 2
        if kind in _SIZES:
            length, read_size = _SIZES[kind]
            body = yield from buffer.take(length)
            tally.enlarge(*read_size(body))
            flags |= body[0] if kind == b"VP8X" else 0
            tally.count_frames(tally.frames + (kind == b"ANMF"))
        elif kind == b"EXIF" and flags & _HAS_EXIF:
            tally.turn(exif_is_sideways((yield from buffer.take(size))))
        buffer.skip_to(end)


def _lossy(body: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", body, 6)
    return width & 0x3FFF, height & 0x3FFF


def _lossless(body: bytes) -> tuple[int, int]:
    (bits,) = struct.unpack_from("<I", body, 1)
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _canvas(body: bytes) -> tuple[int, int]:
    return _uint24(body, 4) + 1, _uint24(body, 7) + 1


def _frame(body: bytes) -> tuple[int, int]:
    left, top, width, height = (_uint24(body, at) for at in (0, 3, 6, 9))
    return 2 * left + width + 1, 2 * top + height + 1


def _uint24(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 3], "little")


# By the type of the chunk: how many bytes of it are needed, and the size that they give.
_SIZES: dict[bytes, tuple[int, Callable[[bytes], tuple[int, int]]]] = {
    b"VP8 ": (10, _lossy),
    b"VP8L": (5, _lossless),
    b"VP8X": (10, _canvas),
    b"ANMF": (12, _frame),
}
