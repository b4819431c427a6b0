"""A lighthouse on a rock; its lamp is lit when it is dark."""

from __future__ import annotations

from holdfast.workloads.generation.drawing.canvas import Point, Shape
from holdfast.workloads.generation.drawing.color import lch, mix, shade
from holdfast.workloads.generation.drawing.sky import Scene

_WHITE, _RED = lch(0.93, 0.01, 80), lch(0.55, 0.18, 28)
_STRIPES = 5
_BASE, _TOP = 0.12, 0.07  # half of the width, of the height
_LAMP = lch(0.95, 0.09, 95)


def lighthouse(scene: Scene, foot: Point, height: float) -> None:
    canvas, palette, (x, y) = scene.canvas, scene.palette, foot
    top = y - height
    if palette.is_dark:
        _beams(scene, (x, top - height * 0.07), height)
    dim = 0.55 if palette.is_dark else 0.12
    for stripe in range(_STRIPES):
        color = mix(_RED if stripe % 2 else _WHITE, palette.near, dim)
        upper, lower = _edge(foot, height, 1 - stripe / _STRIPES), _edge(foot, height, 1 - (stripe + 1) / _STRIPES)
        canvas.paint(Shape().polygon([*upper, *lower[::-1]]), shade(color, 0.03), shade(color, -0.07))
    dark = mix(palette.near, lch(0.25, 0.02, palette.hue), 0.5)
    width = height * _TOP
    gallery = Shape().rectangle(x - width * 1.45, top - height * 0.012, width * 2.9, height * 0.026)
    canvas.paint(gallery, dark)
    lamp = _LAMP if palette.is_dark else mix(_WHITE, palette.sky[1], 0.5)
    canvas.paint(Shape().rectangle(x - width * 0.75, top - height * 0.12, width * 1.5, height * 0.11), lamp)
    roof = Shape().polygon(
        [(x - width, top - height * 0.12), (x + width, top - height * 0.12), (x, top - height * 0.2)]
    )
    canvas.paint(roof, mix(_RED, palette.near, dim))
    _rock(scene, foot, height)
    if palette.is_dark:
        canvas.glow(x, top - height * 0.07, height * 0.42, _LAMP, 0.9)


def _edge(foot: Point, height: float, share: float) -> list[Point]:
    """Across the tower, so far up."""
    half = height * (_BASE + (_TOP - _BASE) * share)
    level = foot[1] - height * share
    return [(foot[0] - half, level), (foot[0] + half, level)]


def _rock(scene: Scene, foot: Point, height: float) -> None:
    chance, (x, y) = scene.chance.of("rock"), foot
    stone = mix(scene.palette.near, lch(0.3, 0.02, 60), 0.45)
    points = [
        (x + height * place, y - height * chance.between(0.02, 0.09))
        for place in (-0.34, -0.25, -0.17, 0.0, 0.16, 0.26, 0.36)
    ]
    outline = [(x - height * 0.46, y + height * 0.14), *points, (x + height * 0.5, y + height * 0.14)]
    scene.canvas.paint(Shape().polygon(outline), shade(stone, 0.04), shade(stone, -0.1))


def _beams(scene: Scene, lamp: Point, height: float) -> None:
    reach = scene.canvas.width + scene.canvas.height
    for side, spread in ((-1, 0.11), (1, 0.08)):
        far = lamp[0] + side * reach
        beam = Shape().polygon([lamp, (far, lamp[1] - reach * spread), (far, lamp[1] + reach * spread * 0.35)])
        scene.canvas.paint(beam, _LAMP, alpha=0.16, soft=height * 0.02, light=True)
