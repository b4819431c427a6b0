"""Shapes with smooth edges, painted onto an image: Pillow's own have rough ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import Color, gradient, rgb

Point = tuple[float, float]
Box = tuple[int, int, int, int]
_FINE = 2  # masks are drawn so many times larger
_WIDE = 6  # from which gaps between the parts of a line are seen
_SOFT_PIXELS = 5.0  # the blur of a soft mask, which is drawn smaller


class Shape:
    """Parts that are painted together."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, list[Point], float]] = []

    def polygon(self, points: Iterable[Point]) -> Shape:
        return self._add("polygon", list(points))

    def ellipse(self, x: float, y: float, across: float, down: float | None = None) -> Shape:
        down = across if down is None else down
        return self._add("ellipse", [(x - across, y - down), (x + across, y + down)])

    def rectangle(self, x: float, y: float, width: float, height: float) -> Shape:
        return self._add("polygon", [(x, y), (x + width, y), (x + width, y + height), (x, y + height)])

    def line(self, points: Iterable[Point], width: float) -> Shape:
        return self._add("line", list(points), width)

    def _add(self, kind: str, points: list[Point], width: float = 0.0) -> Shape:
        self._parts.append((kind, points, width))
        return self

    def box(self, size: tuple[int, int], margin: float) -> Box:
        xs = [x for _, points, _ in self._parts for x, _ in points] or [0.0]
        ys = [y for _, points, _ in self._parts for _, y in points] or [0.0]
        margin += max((width for _, _, width in self._parts), default=0.0) + 1
        left, top = max(0, math.floor(min(xs) - margin)), max(0, math.floor(min(ys) - margin))
        return left, top, min(size[0], math.ceil(max(xs) + margin)), min(size[1], math.ceil(max(ys) + margin))

    def mask(self, box: Box, scale: float) -> Image.Image:
        left, top, right, bottom = box
        mask = Image.new("L", (max(1, round((right - left) * scale)), max(1, round((bottom - top) * scale))))
        pen = ImageDraw.Draw(mask)
        for kind, points, width in self._parts:
            scaled = [((x - left) * scale, (y - top) * scale) for x, y in points]
            if kind == "line":
                wide = max(1, round(width * scale))
                pen.line(scaled, fill=255, width=wide, joint="curve" if wide >= _WIDE else None)
            elif kind == "polygon":
                pen.polygon(scaled, fill=255)
            else:
                pen.ellipse(scaled, fill=255)
        return mask


class Canvas:
    """`unit`: the shorter side, in pixels."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image
        self.width, self.height = image.size
        self.unit = min(image.size)

    def paint(
        self,
        shape: Shape,
        *colors: Color,
        alpha: float = 1.0,
        soft: float = 0.0,
        light: bool = False,
        fine: int = _FINE,
    ) -> None:
        """Several colors: a gradient from its top down. `soft`: the blur of the edge; `light`: it only brightens."""
        box = shape.box(self.image.size, 3 * soft)
        size = box[2] - box[0], box[3] - box[1]
        if min(size) <= 0:
            return
        mask = _mask(shape, box, size, soft, fine)
        if alpha < 1:
            mask = mask.point([round(value * alpha) for value in range(256)])
        fill = gradient(colors, size) if len(colors) > 1 else Image.new("RGB", size, rgb(colors[0]))
        if light:
            fill = ImageChops.screen(self.image.crop(box), fill)
        self.image.paste(fill, box, mask)

    def glow(self, x: float, y: float, radius: float, color: Color, strength: float = 1.0) -> None:
        box = Shape().ellipse(x, y, radius).box(self.image.size, 0)
        size = box[2] - box[0], box[3] - box[1]
        if min(size) <= 0:
            return
        scale = 128 / radius
        within = tuple((value - middle) * scale + 128 for value, middle in zip(box, (x, y, x, y), strict=True))
        fading = [round(strength * 255 * max(0.0, 1 - value / 181) ** 2.2) for value in range(256)]
        light = Image.radial_gradient("L").point(fading)
        mask = light.transform(size, Image.Transform.EXTENT, within, Image.Resampling.BILINEAR)
        self.image.paste(ImageChops.screen(self.image.crop(box), Image.new("RGB", size, rgb(color))), box, mask)


def _mask(shape: Shape, box: Box, size: tuple[int, int], soft: float, fine: int) -> Image.Image:
    if soft <= 0:
        return shape.mask(box, fine).reduce(fine)
    scale = min(1.0, _SOFT_PIXELS / soft)
    blurred = shape.mask(box, scale).filter(ImageFilter.GaussianBlur(soft * scale))
    return blurred.resize(size, Image.Resampling.BICUBIC)


def noise(chance: Chance, size: tuple[int, int], cells: int = 4, octaves: int = 5) -> Image.Image:
    """Grey clouds, from black to white. `cells`: how many of the largest lie along the shorter side."""
    total = Image.new("L", size, 128)
    for octave in range(octaves):
        count = cells * 2**octave
        grid = tuple(max(2, round(count * side / min(size))) for side in size)
        values = Image.frombytes("L", (grid[0], grid[1]), chance.bytes(grid[0] * grid[1]))
        share = 0.55 * 0.6**octave if octave else 1.0
        total = Image.blend(total, values.resize(size, Image.Resampling.BICUBIC), share)
    return ImageOps.autocontrast(total, cutoff=1)


def ridge(chance: Chance, width: float, base: float, height: float, roughness: float = 0.55) -> list[Point]:
    """A jagged line from the left edge to the right one, by midpoint displacement."""
    levels, size = [chance.between(-0.5, 0.5), chance.between(-0.5, 0.5)], 1.0
    while len(levels) < min(257.0, width / 3):
        size *= roughness
        middles = [(a + b) / 2 + chance.between(-size, size) for a, b in pairwise(levels)]
        levels = [value for pair in zip(levels, middles, strict=False) for value in pair] + levels[-1:]
    step = width / (len(levels) - 1)
    return [(n * step, base - height * value) for n, value in enumerate(levels)]


def wave(chance: Chance, width: float, base: float, height: float, count: float = 2.0) -> list[Point]:
    """A smooth line from the left edge to the right one. `count`: how many waves it has, about."""
    parts = [(count * 1.7**n, chance.between(0, math.tau), 0.5**n) for n in range(4)]
    points = 160
    return [
        (
            width * n / points,
            base
            - height / 2 * sum(size * math.sin(math.tau * rate * n / points + phase) for rate, phase, size in parts),
        )
        for n in range(points + 1)
    ]


def ground(line: Sequence[Point], bottom: float) -> Shape:
    """All that lies below a line."""
    return Shape().polygon([*line, (line[-1][0], bottom), (line[0][0], bottom)])
