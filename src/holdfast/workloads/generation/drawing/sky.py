"""What is behind a landscape: sky, clouds, stars, sun or moon."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image, ImageChops

from holdfast.workloads.generation.drawing.canvas import Canvas, Point, Shape, noise
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import gradient, lch, mix, rgb
from holdfast.workloads.generation.drawing.palette import Palette
from holdfast.workloads.generation.drawing.words import Words

_SOFT_SIDE = 384  # of what has no edges, and is enlarged
_WHITE = lch(1.0, 0.0, 0)


class Scene(NamedTuple):
    """All that the parts of a picture are drawn from."""

    canvas: Canvas
    palette: Palette
    chance: Chance
    words: Words

    def of(self, name: object) -> Scene:
        return self._replace(chance=self.chance.of(name))


def sky(scene: Scene, horizon: float) -> Point:
    """Returns where the sun or the moon is. `horizon`: as a share of the height."""
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("sky")
    canvas.image.paste(_air(scene, horizon, chance))
    if palette.is_dark:
        stars(scene.of("stars"), horizon * canvas.height)
    low = 0.62 if palette.time in ("sunset", "dusk", "dawn") else 0.35
    x = canvas.width * chance.pick((chance.between(0.22, 0.40), chance.between(0.60, 0.78)))
    y = canvas.height * horizon * chance.between(low, low + 0.25)
    radius = canvas.unit * chance.between(0.055, 0.10)
    for size, strength in ((9.0, 0.45), (3.6, 0.55)):
        canvas.glow(x, y, radius * size, palette.light, strength)
    canvas.paint(Shape().ellipse(x, y, radius), palette.light)
    if palette.is_dark and palette.time == "night":
        _craters(canvas, palette, chance, (x, y), radius)
    return x, y


def _air(scene: Scene, horizon: float, chance: Chance) -> Image.Image:
    canvas, palette = scene.canvas, scene.palette
    scale = min(1.0, _SOFT_SIDE / max(canvas.image.size))
    size = max(2, round(canvas.width * scale)), max(2, round(canvas.height * scale))
    air = Image.new("RGB", size, rgb(palette.horizon))
    air.paste(gradient(palette.sky, (size[0], max(1, round(size[1] * horizon)))))
    flat = max(2, round(size[0] * 0.45)), size[1]
    clouds = noise(chance, flat, cells=3).resize(size, Image.Resampling.BICUBIC)
    clouds = ImageChops.multiply(clouds, noise(chance, size, cells=2, octaves=1))
    low = chance.count(55, 95)
    opacity = 0.35 if palette.time == "night" else 0.75
    clouds = clouds.point([round(opacity * min(255, max(0, value - low) * 2.2)) for value in range(256)])
    lit = mix(palette.light, _WHITE, 0.3) if not palette.is_dark else mix(palette.sky[1], palette.light, 0.35)
    air.paste(Image.new("RGB", size, rgb(lit)), mask=clouds)
    return air.resize(canvas.image.size, Image.Resampling.BICUBIC)


def stars(scene: Scene, bottom: float) -> None:
    canvas, chance = scene.canvas, scene.chance
    count = round(140 * (canvas.width * bottom / canvas.unit**2) ** 0.5)
    for strength, share in ((0.5, 1.0), (1.0, 0.35)):
        shape = Shape()
        for _ in range(round(count * share)):
            radius = canvas.unit * chance.between(0.0006, 0.0016) * (1 + strength)
            shape.ellipse(chance.between(0, canvas.width), bottom * chance.fraction() ** 1.4, max(0.4, radius))
        canvas.paint(shape, _WHITE, alpha=strength, fine=1)


def _craters(canvas: Canvas, palette: Palette, chance: Chance, center: Point, radius: float) -> None:
    shape = Shape()
    for x, y, size in ((-0.3, -0.25, 0.22), (0.28, 0.1, 0.3), (-0.15, 0.42, 0.16), (0.2, -0.5, 0.12)):
        shape.ellipse(center[0] + x * radius, center[1] + y * radius, size * radius * chance.between(0.8, 1.2))
    canvas.paint(shape, mix(palette.light, palette.sky[1], 0.35), alpha=0.4, soft=radius * 0.05)


def birds(scene: Scene, center: Point) -> None:
    canvas, chance, shape = scene.canvas, scene.chance, Shape()
    for _ in range(chance.count(3, 7)):
        x = center[0] + canvas.unit * chance.between(-0.3, 0.3)
        y = center[1] + canvas.unit * chance.between(-0.12, 0.16)
        span = canvas.unit * chance.between(0.012, 0.024)
        wings = [(x - span, y - span * 0.5), (x - span * 0.45, y - span * 0.55), (x, y)]
        wings += [(x + span * 0.45, y - span * 0.55), (x + span, y - span * 0.45)]
        shape.line(wings, max(1.0, span * 0.14))
    canvas.paint(shape, scene.palette.near, alpha=0.85)


def snow(scene: Scene) -> None:
    canvas, chance, shape = scene.canvas, scene.chance, Shape()
    for _ in range(160):
        radius = canvas.unit * 0.006 * chance.fraction() ** 2 + canvas.unit * 0.0015
        shape.ellipse(chance.between(0, canvas.width), chance.between(0, canvas.height), radius)
    canvas.paint(shape, _WHITE, alpha=0.8)
