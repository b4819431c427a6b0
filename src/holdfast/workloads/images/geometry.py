"""Where the pixels of a picture go in a variant: pure arithmetic."""

from __future__ import annotations

import math
from typing import NamedTuple

from holdfast.workloads.images.variants import PIXELS_MAX, Variant

# The longest side that a format holds. JPEG: libjpeg stops before the 65535 of the format. AVIF: it holds 65536, but
# libavif, which browsers use, reads no more than this.
SIDE_MAX = {"webp": 16_383, "jpeg": 65_500, "avif": 32_768, "png": 2**31 - 1}


class Placement(NamedTuple):
    """`box` of the picture, resized to `size`, in the middle of `canvas`."""

    box: tuple[float, float, float, float]
    size: tuple[int, int]
    canvas: tuple[int, int]

    @property
    def scale(self) -> float:
        left, top, right, bottom = self.box
        return max(self.size[0] / (right - left), self.size[1] / (bottom - top))

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    def transposed(self) -> Placement:
        """The same in a picture whose rows are columns."""
        left, top, right, bottom = self.box
        return Placement((top, left, bottom, right), self.size[::-1], self.canvas[::-1])


def place(width: int, height: int, variant: Variant) -> Placement:
    if variant.fit == "cover" and variant.width and variant.height:
        return _cover(width, height, variant.width, variant.height)
    longest = SIDE_MAX[variant.format]
    widest, highest = (min(side or longest, longest) for side in (variant.width, variant.height))
    scale = min(1.0, widest / width, highest / height, math.sqrt(PIXELS_MAX / (width * height)))
    size = _side(width * scale, widest), _side(height * scale, highest)
    return Placement((0, 0, width, height), size, (widest, highest) if variant.fit == "contain" else size)


def _side(length: float, longest: int) -> int:
    return max(1, min(round(length), longest))


def _cover(width: int, height: int, wide: int, high: int) -> Placement:
    scale = min(width / wide, height / high)
    if scale > 1:
        w, h = min(wide * scale, width), min(high * scale, height)
        left, top = (width - w) / 2, (height - h) / 2
        return Placement((left, top, min(left + w, width), min(top + h, height)), (wide, high), (wide, high))
    # Too small to be covered: pixels are cropped, and stay as they are.
    size = _side(wide * scale, width), _side(high * scale, height)
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    return Placement((left, top, left + size[0], top + size[1]), size, size)
