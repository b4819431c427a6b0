"""What identifies a picture, and what is shown while it loads: from a small thumbnail."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import mul
from typing import NamedTuple

from PIL import Image

THUMBNAIL = (72, 64)  # eight pixels for each of the difference hash
_BLURRED = (32, 32)
_BASE83 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"
_LINEAR = [v / 255 / 12.92 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in range(256)]


class Fingerprint(NamedTuple):
    """`dhash`: 64 bits in hexadecimal; few of them differ between similar pictures. `color`: the dominant one."""

    dhash: str
    blurhash: str
    color: str


def fingerprint(thumbnail: Image.Image, components: tuple[int, int]) -> Fingerprint:
    """`thumbnail`: RGB or RGBA, of size THUMBNAIL whatever the shape of the picture, which no part depends on."""
    flat = thumbnail
    if thumbnail.mode == "RGBA":
        flat = Image.new("RGB", thumbnail.size, "white")
        flat.paste(thumbnail, mask=thumbnail)
    return Fingerprint(dhash(flat), blurhash(flat.resize(_BLURRED), *components), _dominant_color(thumbnail))


def dhash(image: Image.Image) -> str:
    """Whether the picture gets brighter from each of 9 x 8 cells to the one on its right."""
    cells = image.convert("L").resize((9, 8), Image.Resampling.LANCZOS).tobytes()
    bits = (cells[9 * y + x + 1] > cells[9 * y + x] for y in range(8) for x in range(8))
    return f"{int(''.join('01'[bit] for bit in bits), 2):016x}"


def _dominant_color(image: Image.Image) -> str:
    """The mean of the fullest of 512 cells of the color space; white if the picture is transparent."""
    cells: defaultdict[tuple[int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    data = image.convert("RGBA").tobytes()
    for red, green, blue, alpha in zip(data[::4], data[1::4], data[2::4], data[3::4], strict=True):
        if alpha >= 128:
            cells[red >> 5, green >> 5, blue >> 5].append((red, green, blue))
    fullest = max(cells.values(), key=len, default=[(255, 255, 255)])
    return "#" + "".join(f"{round(sum(channel) / len(fullest)):02x}" for channel in zip(*fullest, strict=True))


def blurhash(image: Image.Image, across: int, down: int) -> str:
    """A few cosine components of the picture as text: see blurha.sh. `image`: small RGB."""
    first, *others = _components(image, across, down)
    largest = max((abs(value) for color in others for value in color), default=0.0)
    quantized = max(0, min(82, math.floor(largest * 166 - 0.5)))
    scale = (quantized + 1) / 166
    parts = [_base83(across - 1 + (down - 1) * 9, 1), _base83(quantized if others else 0, 1)]
    parts.append(_base83(_number(map(_to_srgb, first), 256), 4))
    parts += [_base83(_number((_quantized(value / scale) for value in color), 19), 2) for color in others]
    return "".join(parts)


def _components(image: Image.Image, across: int, down: int) -> list[list[float]]:
    """Red, green and blue of each component. Sums over rows, then over columns: fewer products."""
    data, (width, height) = [_LINEAR[value] for value in image.tobytes()], image.size
    rows = [data[3 * width * y : 3 * width * (y + 1)] for y in range(height)]
    of_x, of_y = _cosines(across, width), _cosines(down, height)
    sums = [[[_dot(cosine, row[channel::3]) for row in rows] for channel in range(3)] for cosine in of_x]
    norm = 1 / (width * height)
    return [
        [_dot(vertical, column) * norm * (2 if x or y else 1) for column in sums[x]]
        for y, vertical in enumerate(of_y)
        for x in range(across)
    ]


def _cosines(components: int, length: int) -> list[list[float]]:
    return [[math.cos(math.pi * k * i / length) for i in range(length)] for k in range(components)]


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(map(mul, left, right))


def _to_srgb(linear: float) -> int:
    value = max(0.0, min(1.0, linear))
    return int((value * 12.92 if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055) * 255 + 0.5)


def _quantized(value: float) -> int:
    return max(0, min(18, math.floor(math.copysign(math.sqrt(abs(value)), value) * 9 + 9.5)))


def _number(digits: Iterable[int], base: int) -> int:
    return reduce(lambda number, digit: number * base + digit, digits, 0)


def _base83(value: int, length: int) -> str:
    return "".join(_BASE83[value // 83**place % 83] for place in reversed(range(length)))
