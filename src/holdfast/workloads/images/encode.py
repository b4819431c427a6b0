"""RGB and RGBA images to bytes. The same image and variant give the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from PIL import Image

from holdfast.workloads.images.variants import QUALITY, Variant

# Measured on a photograph of 1600 x 1200. WebP: method 4 takes 220 ms; 2 takes 140 ms for 4 % more bytes. AVIF: speed 8
# takes 0.7 s; 6 takes 2.1 s for 4 % fewer bytes, 9 takes 0.2 s for 8 % more and lower quality. The number of threads
# decides the tiles of an AVIF, so it is fixed, for equal bytes on all machines: each job has its own process anyway.
_OPTIONS: dict[str, dict[str, Any]] = {
    "jpeg": {"progressive": True, "optimize": True, "subsampling": "4:2:0"},
    "png": {},
    "webp": {"method": 4},
    "avif": {"speed": 8, "max_threads": 1},
}
_WHITE = (255, 255, 255)
_TRANSPARENT = (255, 255, 255, 0)


class FrameSequence(Image.Image):
    """An animation whose frames are made when Pillow asks for them, so that few are in memory: a list of frames, or a
    generator, which Pillow makes a list of, would hold all. They are asked for in their order, and once."""

    is_animated = True

    def __init__(self, frames: Iterator[tuple[Image.Image, int]], count: int) -> None:
        super().__init__()
        self.n_frames = count
        self.durations: list[int] = []
        self._frames = frames
        self.seek(0)

    def seek(self, frame: int) -> None:
        if frame >= self.n_frames:
            raise EOFError
        if frame == len(self.durations):
            current, duration = next(self._frames)
            self.im, self._mode, self._size = current.im, current.mode, current.size
            self.durations.append(duration)

    def tell(self) -> int:
        return len(self.durations) - 1


def encode_still(image: Image.Image, variant: Variant) -> bytes:
    return _save(image, variant)


def encode_animation(frames: FrameSequence, variant: Variant, loop: int) -> bytes:
    """`loop`: how often it plays; 0: forever. AVIF: always forever, because Pillow cannot tell libavif otherwise."""
    data = _save(frames, variant, save_all=True, duration=frames.durations, loop=loop)
    if variant.format == "avif":
        return _without_times(data)
    return _with_alpha_flag(data) if frames.mode == "RGBA" else data


def _with_alpha_flag(data: bytes) -> bytes:
    """libwebp sets it if the picture of a frame has transparency, and not if only what a frame clears is transparent:
    that would be black."""
    if data[12:16] != b"VP8X":  # all frames are alike
        return data
    return data[:20] + bytes([data[20] | 0x10]) + data[21:]


def _without_times(data: bytes) -> bytes:
    """libavif writes into an animation when it was made, so that no two files of the same frames would be equal."""
    timeless = bytearray(data)
    for at in _timed_boxes(data, 0, len(data)):
        length = 16 if data[at] == 1 else 8  # by the version of the box, which is followed by three bytes of flags
        timeless[at + 4 : at + 4 + length] = bytes(length)
    return bytes(timeless)


def _timed_boxes(data: bytes, at: int, end: int) -> Iterator[int]:
    """Where the contents begin of each box that starts with the times of its creation and of its last change."""
    while at < end:
        size, kind = struct.unpack_from(">I4s", data, at)
        if kind in (b"mvhd", b"tkhd", b"mdhd"):
            yield at + 8
        elif kind in (b"moov", b"trak", b"mdia"):
            yield from _timed_boxes(data, at + 8, at + size)
        at += size


def _save(image: Image.Image, variant: Variant, **options: Any) -> bytes:
    quality = {} if variant.format == "png" else {"quality": variant.quality or QUALITY[variant.format]}
    file = BytesIO()
    try:
        image.save(file, variant.format, **_OPTIONS[variant.format], **quality, **options)
    except (OSError, RuntimeError, ValueError) as error:  # mode, size and options fit: nothing else can be missing
        raise MemoryError from error
    return file.getvalue()


def on_canvas(image: Image.Image, canvas: tuple[int, int], *, transparency: bool) -> Image.Image:
    """In the middle of a canvas of that size; on white, if the format has no transparency."""
    flattened = image.mode == "RGBA" and not transparency
    if image.size == canvas and not flattened:
        return image
    background = Image.new("RGBA" if transparency else "RGB", canvas, _TRANSPARENT if transparency else _WHITE)
    corner = (canvas[0] - image.width) // 2, (canvas[1] - image.height) // 2
    background.paste(image, corner, image if flattened else None)
    return background
