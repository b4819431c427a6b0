"""Pictures of nothing in particular: flow lines, circles and ribbons."""

from __future__ import annotations

import math

from holdfast.workloads.generation.drawing.canvas import Point, Shape, noise, wave
from holdfast.workloads.generation.drawing.color import gradient, mix, shade
from holdfast.workloads.generation.drawing.sky import Scene

_FIELD = 64


def _ground(scene: Scene) -> None:
    canvas, palette = scene.canvas, scene.palette
    canvas.image.paste(gradient(palette.sky, canvas.image.size))
    chance = scene.chance.of("ground")
    for _ in range(3):
        x, y = chance.between(0, canvas.width), chance.between(0, canvas.height)
        canvas.glow(x, y, max(canvas.image.size) * chance.between(0.4, 0.8), chance.pick(palette.accents), 0.5)


def flow(scene: Scene) -> None:
    """Lines along a field of directions."""
    _ground(scene)
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("flow")
    field = noise(chance, (_FIELD, _FIELD), cells=2, octaves=2).tobytes()
    colors = (*palette.accents, palette.light)
    for n in range(7):
        shape = Shape()
        width = canvas.unit * chance.between(0.0015, 0.007)
        for _ in range(58):
            start = chance.between(-0.05, 1.05) * canvas.width, chance.between(-0.05, 1.05) * canvas.height
            shape.line(_streamline(field, start, canvas.image.size, chance.count(14, 34)), width)
        canvas.paint(shape, colors[n % len(colors)], shade(colors[(n + 1) % len(colors)], -0.05), alpha=0.75)


def _streamline(field: bytes, start: Point, size: tuple[int, int], steps: int) -> list[Point]:
    (x, y), points = start, [start]
    step = min(size) * 0.018
    for _ in range(steps):
        column = min(_FIELD - 1, max(0, int(x / size[0] * _FIELD)))
        row = min(_FIELD - 1, max(0, int(y / size[1] * _FIELD)))
        angle = field[row * _FIELD + column] / 255 * math.tau * 0.9
        x, y = x + step * math.cos(angle), y + step * math.sin(angle)
        points.append((x, y))
    return points


def circles(scene: Scene) -> None:
    _ground(scene)
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("circles")
    for _ in range(26):
        x, y = chance.between(0, canvas.width), chance.between(0, canvas.height)
        radius = canvas.unit * (0.03 + 0.22 * chance.fraction() ** 2)
        color = chance.pick(palette.accents)
        kind = chance.count(0, 4)
        if kind == 0:
            ring = [
                (x + radius * math.cos(math.tau * n / 72), y + radius * math.sin(math.tau * n / 72)) for n in range(73)
            ]
            canvas.paint(Shape().line(ring, radius * 0.12), color, shade(color, -0.1), alpha=0.9)
        elif kind == 1:
            turn = chance.between(0, math.tau)
            half = [
                (x + radius * math.cos(turn + math.pi * n / 36), y + radius * math.sin(turn + math.pi * n / 36))
                for n in range(37)
            ]
            canvas.paint(Shape().polygon(half), color, mix(color, palette.light, 0.4), alpha=0.9)
        else:
            shadow = Shape().ellipse(x + radius * 0.08, y + radius * 0.14, radius)
            canvas.paint(shadow, palette.near, alpha=0.3, soft=radius * 0.12)
            canvas.paint(Shape().ellipse(x, y, radius), shade(color, 0.08), shade(color, -0.08))
            canvas.glow(x - radius * 0.3, y - radius * 0.35, radius * 0.7, palette.light, 0.35)


def ribbons(scene: Scene) -> None:
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("ribbons")
    canvas.image.paste(gradient(palette.sky, canvas.image.size))
    count = chance.count(8, 12)
    shown = [*palette.accents, palette.light, *palette.sky]
    for n in range(count):
        base = canvas.height * (0.1 + 0.95 * n / count)
        line = wave(chance, canvas.width, base, canvas.unit * chance.between(0.18, 0.36), chance.between(0.6, 1.1))
        body = Shape().polygon([*line, (canvas.width, canvas.height), (0, canvas.height)])
        canvas.paint(body, palette.near, alpha=0.35, soft=canvas.unit * 0.02)
        color = mix(shown[n % len(shown)], shown[(n + 3) % len(shown)], 0.25)
        canvas.paint(body, shade(color, 0.07), color, shade(color, -0.12))
    _sheen(scene)


def _sheen(scene: Scene) -> None:
    """Light from one corner."""
    canvas = scene.canvas
    canvas.glow(canvas.width * 0.15, 0, max(canvas.image.size) * 0.9, scene.palette.light, 0.35)
