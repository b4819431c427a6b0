"""Space: a nebula, stars and planets."""

from __future__ import annotations

import math

from PIL import Image, ImageChops

from holdfast.workloads.generation.drawing.canvas import Canvas, Point, Shape, noise
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import Color, between, lch, mix, rgb, shade
from holdfast.workloads.generation.drawing.sky import Scene, stars

_SOFT_SIDE = 320


def space(scene: Scene) -> None:
    canvas, chance = scene.canvas, scene.chance.of("space")
    canvas.image.paste(_nebula(scene, chance).resize(canvas.image.size, Image.Resampling.BICUBIC))
    for n in range(3):
        stars(scene.of(("stars", n)), canvas.height)
    for n in range(chance.count(4, 8)):
        _sparkle(canvas, chance.of(n))
    radius = canvas.unit * chance.between(0.16, 0.27)
    x, y = canvas.width * chance.between(0.3, 0.7), canvas.height * chance.between(0.42, 0.64)
    _planet(scene, chance.of("planet"), (x, y), radius, ring=chance.fraction() < 0.6 or scene.words.has("saturn"))
    away = chance.between(0, math.tau)
    moon = x + radius * 2.3 * math.cos(away), y + radius * 1.7 * math.sin(away)
    _planet(scene, chance.of("moon"), moon, radius * 0.22, ring=False)


def _nebula(scene: Scene, chance: Chance) -> Image.Image:
    scale = min(1.0, _SOFT_SIDE / max(scene.canvas.image.size))
    size = max(2, round(scene.canvas.width * scale)), max(2, round(scene.canvas.height * scale))
    total = Image.new("RGB", size, rgb(lch(0.13, 0.04, scene.palette.hue)))
    for n, color in enumerate(scene.palette.accents[:3]):
        cloud = noise(chance.of(n), size, cells=1, octaves=6)
        ramp = [
            between((lch(0.0, 0, 0), lch(0.0, 0, 0), mix(lch(0.1, 0, 0), color, 0.5), color), v / 255)
            for v in range(256)
        ]
        channels = [cloud.point([round(0.75 * rgb(step)[channel]) for step in ramp]) for channel in range(3)]
        total = ImageChops.screen(total, Image.merge("RGB", channels))
    return total


def _sparkle(canvas: Canvas, chance: Chance) -> None:
    x, y = chance.between(0, canvas.width), chance.between(0, canvas.height)
    size, white = canvas.unit * chance.between(0.012, 0.03), lch(0.98, 0.02, 240)
    canvas.glow(x, y, size * 1.6, white, 0.6)
    rays = Shape()
    for dx, dy in ((size, size * 0.05), (size * 0.05, size)):
        rays.polygon([(x - dx, y), (x, y - dy), (x + dx, y), (x, y + dy)])
    canvas.paint(rays, white, alpha=0.9)


def _planet(scene: Scene, chance: Chance, at: Point, radius: float, *, ring: bool) -> None:
    canvas, (x, y) = scene.canvas, at
    color = chance.pick(scene.palette.accents[1:])
    tilt = chance.between(-0.5, 0.5)
    canvas.glow(x, y, radius * 1.9, color, 0.6)
    if ring:
        _ring(canvas, at, radius, tilt, color, behind=True)
    _globe(canvas, chance, at, radius, color)
    if ring:
        _ring(canvas, at, radius, tilt, color, behind=False)


def _globe(canvas: Canvas, chance: Chance, at: Point, radius: float, color: Color) -> None:
    side = max(2, round(2 * radius))
    bands = noise(chance, (max(2, side // 6), side), cells=2, octaves=4).resize((side, side), Image.Resampling.BICUBIC)
    ramp = [between((shade(color, -0.22), color, shade(color, 0.16)), v / 255) for v in range(256)]
    surface = Image.merge("RGB", [bands.point([rgb(step)[channel] for step in ramp]) for channel in range(3)])
    light = Image.radial_gradient("L").transform(
        (side, side), Image.Transform.EXTENT, (50, 55, 225, 230), Image.Resampling.BILINEAR
    )
    lit = light.point([round(255 * max(0.05, 1 - (value / 190) ** 1.6)) for value in range(256)])
    surface = ImageChops.multiply(surface, Image.merge("RGB", (lit, lit, lit)))
    box = (0, 0, side, side)
    mask = Shape().ellipse(side / 2, side / 2, side / 2 - 1).mask(box, 2).reduce(2)
    canvas.image.paste(surface, (round(at[0]) - side // 2, round(at[1]) - side // 2), mask)


def _ring(canvas: Canvas, at: Point, radius: float, tilt: float, color: Color, *, behind: bool) -> None:
    start = math.pi if behind else 0.0
    for size, alpha in ((1.45, 0.5), (1.65, 0.75), (1.86, 0.4)):
        points = []
        for n in range(49):
            angle = start + math.pi * n / 48
            dx, dy = radius * size * math.cos(angle), radius * size * 0.28 * math.sin(angle)
            points.append(
                (at[0] + dx * math.cos(tilt) - dy * math.sin(tilt), at[1] + dx * math.sin(tilt) + dy * math.cos(tilt))
            )
        canvas.paint(Shape().line(points, radius * 0.08), shade(color, 0.18), alpha=alpha)
