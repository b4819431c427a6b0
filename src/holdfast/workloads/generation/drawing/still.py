"""Subjects in front of a plain background: a portrait, an animal."""

from __future__ import annotations

import math

from holdfast.workloads.generation.drawing.canvas import Canvas, Point, Shape
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import Color, gradient, lch, mix, shade
from holdfast.workloads.generation.drawing.palette import Palette
from holdfast.workloads.generation.drawing.sky import Scene, stars


def _background(scene: Scene) -> tuple[float, float]:
    """A disc in front of light; returns its center."""
    canvas, palette = scene.canvas, scene.palette
    canvas.image.paste(gradient((palette.sky[0], palette.sky[1], palette.sky[2]), canvas.image.size))
    if palette.is_dark:
        stars(scene.of("stars"), canvas.height)
    x, y = canvas.width / 2, canvas.height * 0.46
    canvas.glow(x, y, canvas.unit * 0.9, palette.light, 0.5)
    canvas.paint(Shape().ellipse(x, y, canvas.unit * 0.36), palette.light, mix(palette.light, palette.sky[2], 0.7))
    return x, y


def portrait(scene: Scene) -> None:
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("person")
    x, y = _background(scene)
    u = canvas.unit
    skin = lch(chance.between(0.50, 0.86), chance.between(0.06, 0.09), chance.between(45, 65))
    hair = chance.pick((lch(0.22, 0.03, 40), lch(0.34, 0.07, 48), lch(0.70, 0.10, 80), palette.accents[0]))
    words, long = scene.words, chance.fraction() < 0.5
    long = (long or words.has("woman", "girl", "lady", "queen")) and not words.has("man", "boy", "king")
    lean = u * chance.between(-0.02, 0.02)
    _hair_behind(canvas, chance, (x, y), hair, long=long)
    _shoulders(canvas, palette, (x, y))
    neck = Shape().polygon(
        [
            (x - u * 0.05, y + u * 0.08),
            (x + u * 0.05, y + u * 0.08),
            (x + u * 0.075, y + u * 0.30),
            (x - u * 0.075, y + u * 0.30),
        ]
    )
    canvas.paint(neck, shade(skin, -0.12), shade(skin, -0.03))
    head = _egg((x + lean, y), u * 0.118, u * 0.165)
    canvas.paint(Shape().polygon(head), shade(skin, 0.04), skin, shade(skin, -0.05))
    half = [(px, py) for px, py in head if px > x + lean] + [
        (x + lean + u * 0.02, y + u * 0.17),
        (x + lean + u * 0.015, y - u * 0.1),
    ]
    canvas.paint(Shape().polygon(_around(half)), shade(skin, -0.09), alpha=0.35, soft=u * 0.012)
    _features(canvas, (x + lean, y), skin, hair, palette)
    _fringe(canvas, chance, (x + lean, y), hair)


def _egg(center: Point, across: float, down: float) -> list[Point]:
    """A head: narrower at its chin."""
    points = []
    for n in range(60):
        angle = math.tau * n / 60
        narrow = 1 - 0.22 * max(0.0, math.sin(angle)) ** 1.5
        points.append((center[0] + across * narrow * math.cos(angle), center[1] + down * math.sin(angle)))
    return points


def _around(points: list[Point]) -> list[Point]:
    """In the order of their angles."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sorted(points, key=lambda point: math.atan2(point[1] - y, point[0] - x))


def _hair_behind(canvas: Canvas, chance: Chance, center: Point, hair: Color, *, long: bool) -> None:
    (x, y), u = center, canvas.unit
    shape = Shape().ellipse(x, y - u * 0.04, u * 0.155, u * 0.175)
    if long:
        low = y + u * chance.between(0.22, 0.36)
        shape.polygon(
            [(x - u * 0.155, y - u * 0.04), (x + u * 0.155, y - u * 0.04), (x + u * 0.2, low), (x - u * 0.2, low)]
        )
        shape.ellipse(x - u * 0.10, low, u * 0.10, u * 0.04).ellipse(x + u * 0.10, low, u * 0.10, u * 0.04)
        shape.ellipse(x, low, u * 0.1, u * 0.035)
    canvas.paint(shape, shade(hair, 0.03), shade(hair, -0.08))


def _fringe(canvas: Canvas, chance: Chance, center: Point, hair: Color) -> None:
    (x, y), u = center, canvas.unit
    part = chance.between(-0.05, 0.05)
    left = [
        (x + u * part, y - u * 0.155),
        (x - u * 0.06, y - u * 0.10),
        (x - u * 0.118, y + u * 0.02),
        (x - u * 0.14, y - u * 0.04),
        (x - u * 0.10, y - u * 0.16),
    ]
    right = [
        (x + u * part, y - u * 0.155),
        (x + u * 0.07, y - u * 0.10),
        (x + u * 0.118, y + u * 0.02),
        (x + u * 0.14, y - u * 0.04),
        (x + u * 0.10, y - u * 0.16),
    ]
    top = Shape().polygon(left).polygon(right).ellipse(x, y - u * 0.15, u * 0.105, u * 0.045)
    canvas.paint(top, shade(hair, 0.06), hair)


def _features(canvas: Canvas, center: Point, skin: Color, hair: Color, palette: Palette) -> None:
    (x, y), u = center, canvas.unit
    dark = lch(0.25, 0.03, 40)
    brows, eyes = Shape(), Shape()
    for side in (-1, 1):
        eye = x + side * u * 0.046
        eyes.ellipse(eye, y - u * 0.005, u * 0.0125, u * 0.009)
        brows.line(
            [
                (eye - u * 0.022, y - u * 0.030 + side * u * 0.003),
                (eye, y - u * 0.036),
                (eye + u * 0.022, y - u * 0.030 - side * u * 0.003),
            ],
            u * 0.006,
        )
    canvas.paint(eyes, dark)
    canvas.paint(brows, shade(hair, -0.05), alpha=0.8)
    canvas.paint(
        Shape().line(
            [(x + u * 0.004, y + u * 0.005), (x + u * 0.013, y + u * 0.045), (x - u * 0.004, y + u * 0.050)], u * 0.005
        ),
        shade(skin, -0.14),
    )
    lips = mix(skin, lch(0.55, 0.16, 20), 0.7)
    mouth = [
        (x - u * 0.032, y + u * 0.086),
        (x - u * 0.008, y + u * 0.079),
        (x, y + u * 0.082),
        (x + u * 0.008, y + u * 0.079),
        (x + u * 0.032, y + u * 0.086),
        (x, y + u * 0.101),
    ]
    canvas.paint(Shape().polygon(mouth), lips)
    cheeks = Shape().ellipse(x - u * 0.062, y + u * 0.045, u * 0.02).ellipse(x + u * 0.062, y + u * 0.045, u * 0.02)
    canvas.paint(cheeks, mix(skin, palette.accents[2], 0.5), alpha=0.3, soft=u * 0.012)


def _shoulders(canvas: Canvas, palette: Palette, center: Point) -> None:
    (x, y), u = center, canvas.unit
    cloth = palette.accents[1]
    body = [
        (x - u * 0.05, y + u * 0.22),
        (x + u * 0.05, y + u * 0.22),
        (x + u * 0.17, y + u * 0.28),
        (x + u * 0.28, y + u * 0.36),
        (x + u * 0.34, canvas.height + u * 0.1),
        (x - u * 0.34, canvas.height + u * 0.1),
        (x - u * 0.28, y + u * 0.36),
        (x - u * 0.17, y + u * 0.28),
    ]
    canvas.paint(Shape().polygon(body), cloth, shade(cloth, -0.14))
    collar = Shape().polygon(
        [
            (x - u * 0.085, y + u * 0.225),
            (x, y + u * 0.36),
            (x + u * 0.085, y + u * 0.225),
            (x + u * 0.14, y + u * 0.26),
            (x, y + u * 0.44),
            (x - u * 0.14, y + u * 0.26),
        ]
    )
    canvas.paint(collar, shade(palette.accents[3], 0.03), shade(palette.accents[3], -0.1))


def cat(scene: Scene) -> None:
    """Seen from behind, in front of the sun or the moon."""
    canvas, palette, chance = scene.canvas, scene.palette, scene.chance.of("cat")
    x, y = _background(scene)
    u, fur = canvas.unit, shade(palette.near, -0.03)
    floor = y + u * 0.36
    canvas.paint(
        Shape().ellipse(x, floor + u * 0.50, max(canvas.width * 0.75, u), u * 0.53),
        shade(palette.near, -0.02),
        shade(palette.near, -0.1),
    )
    tail = _tail(chance, (x, floor), u)
    shape = Shape().line(tail, u * 0.034).ellipse(*tail[-1], u * 0.017)
    shape.polygon(_body((x, floor), u)).ellipse(x, y - u * 0.02, u * 0.105, u * 0.09)
    pointed = 0.07 if scene.words.has("fox", "wolf") else 0.045
    for side in (-1, 1):
        ear = [
            (x + side * u * 0.102, y - u * 0.03),
            (x + side * u * 0.092, y - u * (0.115 + pointed)),
            (x + side * u * 0.022, y - u * 0.095),
        ]
        shape.polygon(ear)
    canvas.paint(shape, shade(fur, 0.05), shade(fur, -0.03))
    canvas.paint(_rim((x, floor), u), palette.light, alpha=0.5, soft=u * 0.004, light=True)


def _body(at: Point, u: float) -> list[Point]:
    (x, floor) = at
    right = [(0.06, 0.34), (0.085, 0.29), (0.12, 0.21), (0.15, 0.12), (0.155, 0.05), (0.14, 0.0), (0.10, -0.02)]
    return [(x + a * u, floor - b * u) for a, b in right] + [(x - a * u, floor - b * u) for a, b in reversed(right)]


def _rim(at: Point, u: float) -> Shape:
    """Light on the edge of the back."""
    return Shape().line(
        [(at[0] + a * u, at[1] - b * u) for a, b in ((0.08, 0.29), (0.115, 0.21), (0.145, 0.12))], u * 0.006
    )


def _tail(chance: Chance, at: Point, u: float) -> list[Point]:
    side, curl = chance.pick((-1, 1)), chance.between(0.8, 1.2)
    steps = [n / 24 for n in range(25)]
    return [
        (
            at[0] + side * u * (0.10 + 0.17 * math.sin(t * 2.2)),
            at[1] - u * (0.01 + 0.30 * curl * t**1.6) + u * 0.03 * math.sin(t * 6),
        )
        for t in steps
    ]
