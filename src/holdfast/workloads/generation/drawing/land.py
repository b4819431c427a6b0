"""Landscapes: mountains, forests and deserts in layers that fade into the distance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from holdfast.workloads.generation.drawing.canvas import Canvas, Point, Shape, ground, ridge, wave
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import Color, lch, mix, shade
from holdfast.workloads.generation.drawing.palette import Palette
from holdfast.workloads.generation.drawing.sky import Scene, birds, sky, snow

_SNOW = lch(0.97, 0.01, 245)
_RAGGED = (0.35, 0.6, 0.42, 0.75, 0.5)  # how far snow reaches down


def distance(palette: Palette, nearness: float) -> Color:
    """Of the ground: the color of the air far away, its own one near."""
    body = lch(0.50 if palette.is_dark else 0.62, 0.07, palette.hue)
    return mix(mix(palette.horizon, body, 0.25 + 0.5 * nearness), palette.near, nearness**1.3)


def mountains(scene: Scene) -> None:
    canvas, palette = scene.canvas, scene.palette
    sun = sky(scene, 0.72)
    layers = 6
    for n in range(layers):
        chance, nearness = scene.chance.of(("ridge", n)), n / (layers - 1)
        base = canvas.height * (0.50 + 0.42 * nearness**1.2)
        height = min(canvas.height, canvas.width) * (0.42 - 0.20 * nearness)
        line = (_peaks if n < 3 else ridge)(chance, canvas.width, base, height)
        color = distance(palette, nearness)
        canvas.paint(ground(line, canvas.height), color, mix(color, palette.horizon, 0.45 * (1 - nearness)))
        if n < 3:
            if n == 0 or scene.words.season == "winter":
                canvas.paint(_snow_caps(line, height), _SNOW, mix(_SNOW, color, 0.35), alpha=0.9)
            canvas.paint(_shaded_faces(line, sun), shade(color, -0.16), color, alpha=0.45)
    birds(scene.of("birds"), (sun[0], sun[1] * 0.8))
    _foreground(scene)


def _peaks(chance: Chance, width: float, base: float, height: float) -> list[Point]:
    """A jagged line with a few summits."""
    summits = [(chance.between(-0.05, 1.05), chance.between(0.35, 1.0), chance.between(0.14, 0.34)) for _ in range(5)]
    return [
        (x, y - height * max(tall * (1 - abs(x / width - at) / wide) for at, tall, wide in summits))
        for x, y in ridge(chance, width, base, height * 0.3, 0.56)
    ]


def _shaded_faces(line: list[Point], sun: Point) -> Shape:
    """The sides that face away from the sun."""
    bottom, shape = max(y for _, y in line), Shape()
    for part in _slopes(line[::4]):
        rising = part[-1][1] < part[0][1]
        if rising == (sun[0] > part[0][0]):
            continue
        foot, (x, y) = (part[0], part[-1]) if rising else (part[-1], part[0])
        lean = 0.35 * (part[0][1] - part[-1][1])
        shape.polygon(
            [*part, (foot[0], bottom), (x + 0.4 * lean, (y + bottom) / 2), (x - 0.15 * lean, y + 0.2 * (bottom - y))]
        )
    return shape


def _snow_caps(line: list[Point], height: float) -> Shape:
    snowline, shape = min(y for _, y in line) + height * 0.42, Shape()
    depths = [max(0.0, snowline - y) * _RAGGED[n // 2 % len(_RAGGED)] for n, (_, y) in enumerate(line)]
    for ((x, y), depth), ((x2, y2), depth2) in pairwise(zip(line, depths, strict=True)):
        if max(y, y2) < snowline:
            shape.polygon([(x, y), (x2, y2), (x2, y2 + depth2), (x, y + depth)])
    return shape


def _slopes(line: list[Point]) -> Iterator[list[Point]]:
    """Its parts between the turning points."""
    part = [line[0]]
    for before, after in pairwise(line):
        if len(part) > 1 and (after[1] < before[1]) != (before[1] < part[-2][1]):
            yield part
            part = [before]
        part.append(after)
    yield part


def _foreground(scene: Scene) -> None:
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("trees")
    line = wave(chance, canvas.width, canvas.height * 0.95, canvas.unit * 0.06, 1.5)
    shape = ground(line, canvas.height)
    for x, y in line[:: max(1, round(160 * canvas.unit * 0.035 / canvas.width))]:
        if chance.fraction() < 0.75:
            conifer(shape, x, y + canvas.unit * 0.01, canvas.unit * chance.between(0.05, 0.13))
    canvas.paint(shape, shade(palette.near, -0.06))


def conifer(shape: Shape, x: float, y: float, height: float) -> None:
    tiers, half = 5, height * 0.2
    left, right = [(x, y - height)], list[Point]()
    for tier in range(1, tiers + 1):
        reach, low = half * tier / tiers, y - height * (1 - tier / tiers * 0.94)
        left += [(x - reach, low), (x - reach * 0.45, low - height * 0.025)]
        right += [(x + reach, low), (x + reach * 0.45, low - height * 0.025)]
    trunk = height * 0.035
    shape.polygon([*left, (x - trunk, y), (x + trunk, y), *right[::-1]])


def forest(scene: Scene) -> None:
    canvas, palette = scene.canvas, scene.palette
    sun = sky(scene, 0.85)
    _beams(canvas, palette, scene.chance.of("beams"), sun)
    layers = 5
    for n in range(layers):
        chance, nearness = scene.chance.of(("wood", n)), n / (layers - 1)
        tall = canvas.unit * (0.20 + 0.42 * nearness**1.4)
        line = wave(chance, canvas.width, canvas.height * (0.66 + 0.34 * nearness), canvas.unit * 0.05)
        shape, x = ground(line, canvas.height + 1), -tall * chance.fraction()
        while x < canvas.width + tall:
            y = line[min(len(line) - 1, max(0, round(x / canvas.width * (len(line) - 1))))][1]
            open_air = nearness > 0.6 and abs(x - sun[0]) < canvas.width * 0.16
            conifer(shape, x, y + tall * 0.05, tall * chance.between(0.55, 1.05) * (0.45 if open_air else 1.0))
            x += tall * chance.between(0.14, 0.34)
        color = distance(palette, nearness)
        canvas.paint(shape, color, mix(color, palette.horizon, 0.5 * (1 - nearness)))
    if scene.words.season == "winter":
        snow(scene.of("snow"))


def _beams(canvas: Canvas, palette: Palette, chance: Chance, sun: Point) -> None:
    shape, far = Shape(), math.hypot(canvas.width, canvas.height)
    for _ in range(7):
        angle, width = chance.between(0.1 * math.pi, 0.9 * math.pi), chance.between(0.012, 0.04)
        edges = [(sun[0] + far * math.cos(a), sun[1] + far * math.sin(a)) for a in (angle - width, angle + width)]
        shape.polygon([sun, *edges])
    canvas.paint(shape, palette.light, palette.horizon, alpha=0.28, soft=canvas.unit * 0.012, light=True)


def desert(scene: Scene) -> None:
    canvas, palette = scene.canvas, scene.palette
    sun = sky(scene, 0.62)
    sand = lch(0.60 if palette.is_dark else 0.82, 0.09, palette.hue)
    plain = mix(palette.horizon, sand, 0.45)
    canvas.paint(Shape().rectangle(0, canvas.height * 0.6, canvas.width, canvas.height * 0.4 + 1), plain, sand)
    count = 7
    for n in range(count):
        nearness = n / (count - 1)
        color = mix(mix(palette.horizon, sand, 0.45 + 0.5 * nearness), palette.near, 0.35 * nearness)
        _dune(canvas, scene.chance.of(("dune", n)), nearness, color, sun)
    birds(scene.of("birds"), sun)


def _dune(canvas: Canvas, chance: Chance, nearness: float, color: Color, sun: Point) -> None:
    """A lit slope and one in the shade, which meet in a crest that winds down."""
    floor = canvas.height * (0.64 + 0.42 * nearness)
    tall, wide = canvas.unit * (0.07 + 0.24 * nearness), canvas.width * chance.between(0.55, 0.9)
    x, top = canvas.width * chance.between(0.1, 0.9), floor - tall
    steps = [n / 30 for n in range(31)]
    rise = [(x - wide * (1 - t), floor - tall * (t * t * (3 - 2 * t)) ** 1.2) for t in steps]
    fall = [(x + wide * t, floor - tall * (1 - t) ** 1.9) for t in steps]
    crest = [(x + tall * (0.45 * math.sin(t * 4.2) + 0.5 * t), top + tall * t) for t in steps]
    slopes = Shape().polygon([*rise, *crest]), Shape().polygon([*fall, *crest[::-1]])
    left, right = slopes if sun[0] < x else slopes[::-1]
    below = Shape().rectangle(0, floor - 1, canvas.width, canvas.height - floor + 2)
    canvas.paint(below, shade(color, -0.03), shade(color, -0.10))
    canvas.paint(left, shade(color, 0.07), shade(color, -0.01))
    canvas.paint(right, shade(color, -0.17), shade(color, -0.07))
