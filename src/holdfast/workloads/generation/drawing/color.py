"""Colors in OKLab, in which a mixture of two looks like one that lies between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from PIL import Image

Color = tuple[float, float, float]
_STEPS = 128  # of a gradient, before it is enlarged


def lch(lightness: float, chroma: float, hue: float) -> Color:
    angle = math.radians(hue)
    return lightness, chroma * math.cos(angle), chroma * math.sin(angle)


def mix(one: Color, other: Color, share: float) -> Color:
    """`share`: that of the other."""
    return (
        one[0] + (other[0] - one[0]) * share,
        one[1] + (other[1] - one[1]) * share,
        one[2] + (other[2] - one[2]) * share,
    )


def shade(color: Color, lighter: float) -> Color:
    return min(1.0, max(0.0, color[0] + lighter)), color[1], color[2]


def between(colors: Sequence[Color], at: float) -> Color:
    """Of colors that are as far from each other; `at`: 0 to 1."""
    place = min(1.0, max(0.0, at)) * (len(colors) - 1)
    first = min(int(place), len(colors) - 2) if len(colors) > 1 else 0
    return mix(colors[first], colors[min(first + 1, len(colors) - 1)], place - first)


@lru_cache(maxsize=4096)
def rgb(color: Color) -> tuple[int, int, int]:
    lightness, a, b = color
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        _gamma(4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short),
        _gamma(-1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short),
        _gamma(-0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short),
    )


def _gamma(linear: float) -> int:
    value = min(1.0, max(0.0, linear))
    return round(255 * (12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055))


def gradient(colors: Sequence[Color], size: tuple[int, int]) -> Image.Image:
    """From the top down."""
    steps = bytes(value for n in range(_STEPS) for value in rgb(between(colors, n / (_STEPS - 1))))
    return Image.frombytes("RGB", (1, _STEPS), steps).resize(size, Image.Resampling.BICUBIC)
