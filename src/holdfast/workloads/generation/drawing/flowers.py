"""A meadow of flowers."""

from __future__ import annotations

import math

from holdfast.workloads.generation.drawing.canvas import Point, Shape, ground, wave
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import Color, lch, mix, shade
from holdfast.workloads.generation.drawing.sky import Scene, sky

_PETALS = (5, 25, 60, 88, 300, 330, 350)  # hues


def flowers(scene: Scene) -> None:
    canvas, palette = scene.canvas, scene.palette
    sky(scene, 0.9)
    leaf = lch(0.34 if palette.is_dark else 0.46, 0.10, 140)
    chance = scene.chance.of("flowers")
    for n in range(3):
        line = wave(chance, canvas.width, canvas.height * (0.68 + 0.10 * n), canvas.unit * 0.10, 1.2)
        color = mix(palette.horizon, leaf, 0.45 + 0.25 * n)
        canvas.paint(ground(line, canvas.height), color, shade(color, -0.12))
    _grass(scene, chance, leaf)
    count = 8 + round(5 * canvas.width / canvas.unit)
    spots = sorted((chance.fraction(), (n + chance.between(0.2, 0.8)) / count) for n in range(count))
    for depth, place in spots:
        _flower(scene, chance, canvas.width * place, 0.35 + 0.65 * depth, leaf)


def _flower(scene: Scene, chance: Chance, x: float, nearness: float, leaf: Color) -> None:
    canvas = scene.canvas
    u = canvas.unit * nearness
    foot, y = canvas.height * 1.02, canvas.height * (0.50 + 0.28 * nearness) - u * chance.between(0.05, 0.32)
    bend = u * chance.between(-0.06, 0.06)
    stem = [(x + bend * (1 - t / 12) ** 2, y + (foot - y) * t / 12) for t in range(13)]
    canvas.paint(Shape().line(stem, max(1.0, u * 0.014)), leaf, shade(leaf, -0.15))
    for n in (5, 7):
        side = u * chance.between(0.07, 0.12) * chance.pick((-1, 1))
        (a, b), blade = stem[n], Shape()
        blade.polygon(
            [(a, b), (a + side * 0.5, b - u * 0.055), (a + side, b - u * 0.07), (a + side * 0.65, b - u * 0.015)]
        )
        canvas.paint(blade, shade(leaf, 0.05), shade(leaf, -0.05))
    center, color = stem[0], lch(chance.between(0.60, 0.78), chance.between(0.12, 0.18), chance.pick(_PETALS))
    petals, radius, turn = chance.pick((5, 6, 8, 12)), u * chance.between(0.075, 0.12), chance.between(0, math.tau)
    for ring, (size, lighter) in enumerate(((1.0, -0.06), (0.74, 0.03), (0.48, 0.09))):
        shape = Shape()
        for n in range(petals):
            _petal(shape, center, turn + math.tau * (n + ring / 2) / petals, radius * size, math.pi / petals)
        canvas.paint(shape, shade(color, lighter), shade(color, lighter - 0.07))
    canvas.paint(Shape().ellipse(*center, radius * 0.2), lch(0.82, 0.15, 85), lch(0.62, 0.13, 65))


def _grass(scene: Scene, chance: Chance, leaf: Color) -> None:
    canvas, shape = scene.canvas, Shape()
    for _ in range(round(150 * canvas.width / canvas.unit)):
        x, tall = chance.between(0, canvas.width), canvas.unit * chance.between(0.05, 0.17)
        bend, half = tall * chance.between(-0.35, 0.35), canvas.unit * 0.004
        shape.polygon([(x - half, canvas.height), (x + bend, canvas.height - tall), (x + half, canvas.height)])
    canvas.paint(shape, shade(leaf, -0.02), shade(leaf, -0.14))


def _petal(shape: Shape, center: Point, angle: float, length: float, half: float) -> None:
    points = []
    for n in range(20):
        t = math.tau * n / 20
        along, aside = length * (0.55 - 0.45 * math.cos(t)), length * 0.62 * math.sin(half) * math.sin(t) * 1.1
        points.append(
            (
                center[0] + along * math.cos(angle) - aside * math.sin(angle),
                center[1] + along * math.sin(angle) + aside * math.cos(angle),
            )
        )
    shape.polygon(points)
