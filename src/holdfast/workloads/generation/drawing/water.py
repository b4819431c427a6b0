"""The sea: water that reflects the sky, waves, and perhaps a boat."""

from __future__ import annotations

import math

from holdfast.workloads.generation.drawing.canvas import Canvas, Point, Shape, ground, ridge, wave
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import lch, mix, shade
from holdfast.workloads.generation.drawing.lighthouse import lighthouse
from holdfast.workloads.generation.drawing.palette import Palette
from holdfast.workloads.generation.drawing.sky import Scene, birds, sky

_HORIZON = 0.56
_FOAM = lch(0.98, 0.01, 220)


def sea(scene: Scene) -> None:
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("sea")
    sun = sky(scene, _HORIZON)
    level = canvas.height * _HORIZON
    deep = lch(0.24 if palette.is_dark else 0.40, 0.08, palette.hue)
    far = ridge(chance, canvas.width, level + canvas.unit * 0.02, canvas.unit * 0.14, 0.5)
    canvas.paint(
        ground(far, level + 2), mix(palette.horizon, palette.near, 0.4), mix(palette.horizon, palette.near, 0.2)
    )
    water = mix(palette.horizon, deep, 0.45)
    canvas.paint(Shape().rectangle(0, level, canvas.width, canvas.height - level), water, deep, shade(deep, -0.08))
    _reflection(canvas, palette, chance, sun, level)
    if scene.words.has("lighthouse"):
        side = 0.27 if sun[0] > canvas.width / 2 else 0.73
        lighthouse(scene, (canvas.width * side, level + canvas.unit * 0.1), canvas.unit * 0.42)
    elif scene.words.has("boat", "ship", "sail") or chance.fraction() < 0.5:
        _boat(
            canvas, palette, (canvas.width * chance.between(0.3, 0.7), level + canvas.unit * 0.06), canvas.unit * 0.085
        )
    for n in range(6):
        _swell(scene, n / 5, chance.of(n))
    birds(scene.of("birds"), (canvas.width * 0.5, level * 0.6))


def _reflection(canvas: Canvas, palette: Palette, chance: Chance, sun: Point, level: float) -> None:
    shape, y = Shape(), level + canvas.unit * 0.006
    while y < canvas.height:
        depth = (y - level) / (canvas.height - level)
        spread = canvas.unit * (0.05 + 0.16 * depth)
        for _ in range(3):
            width = spread * chance.between(0.15, 0.75)
            x = sun[0] + spread * chance.between(-0.7, 0.7)
            shape.ellipse(x, y, width, canvas.unit * (0.0016 + 0.005 * depth))
        y += canvas.unit * (0.007 + 0.02 * depth)
    canvas.paint(shape, palette.light, palette.horizon, alpha=0.7, light=True)


def _swell(scene: Scene, nearness: float, chance: Chance) -> None:
    canvas, palette = scene.canvas, scene.palette
    base = canvas.height * (0.66 + 0.32 * nearness)
    line = wave(
        chance, canvas.width, base, canvas.unit * (0.012 + 0.045 * nearness), chance.between(1.6, 3.2) - nearness
    )
    top = lch((0.36 if palette.is_dark else 0.60) - 0.16 * nearness, 0.09, palette.hue)
    top = mix(top, palette.horizon, 0.35 * (1 - nearness))
    canvas.paint(ground(line, canvas.height), top, shade(top, -0.12), alpha=0.75 + 0.25 * nearness)
    crest = [
        (x, y + canvas.unit * (0.001 + 0.005 * nearness) * (0.8 + math.sin(x / canvas.unit * 9 + 7 * nearness)))
        for x, y in line
    ]
    foam = Shape().polygon([*line, *crest[::-1]])
    canvas.paint(foam, mix(_FOAM, palette.light, 0.4), alpha=0.25 + 0.35 * nearness)


def _boat(canvas: Canvas, palette: Palette, at: Point, size: float) -> None:
    x, y = at
    hull = [(x - size * 0.7, y - size * 0.16), (x + size * 0.8, y - size * 0.16), (x + size * 0.5, y + size * 0.1)]
    canvas.paint(Shape().polygon([*hull, (x - size * 0.5, y + size * 0.1)]), shade(palette.near, -0.04))
    mast = Shape().line([(x, y - size * 0.1), (x, y - size * 1.65)], max(1.0, size * 0.035))
    canvas.paint(mast, palette.near)
    sails = Shape().polygon(
        [(x + size * 0.05, y - size * 1.6), (x + size * 0.05, y - size * 0.28), (x + size * 0.75, y - size * 0.28)]
    )
    canvas.paint(sails, mix(palette.light, _FOAM, 0.5), mix(palette.light, palette.sky[1], 0.25))
    jib = Shape().polygon(
        [(x - size * 0.05, y - size * 1.4), (x - size * 0.05, y - size * 0.28), (x - size * 0.55, y - size * 0.28)]
    )
    canvas.paint(jib, palette.accents[2], shade(palette.accents[2], -0.1))
