"""A skyline in layers, with lit windows."""

from __future__ import annotations

from holdfast.workloads.generation.drawing.canvas import Canvas, Shape
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import lch, mix, shade
from holdfast.workloads.generation.drawing.land import distance
from holdfast.workloads.generation.drawing.palette import Palette
from holdfast.workloads.generation.drawing.sky import Scene, birds, sky

_LAYERS = 4
_WINDOWS_MAX = 900


def city(scene: Scene) -> None:
    canvas, palette = scene.canvas, scene.palette
    sun = sky(scene, 0.85)
    for n in range(_LAYERS):
        _row(scene, n / (_LAYERS - 1), scene.chance.of(("row", n)))
        mist = Shape().rectangle(0, canvas.height * 0.72, canvas.width, canvas.height * 0.28)
        canvas.paint(mist, palette.horizon, alpha=0.16 if n < _LAYERS - 1 else 0.0, soft=canvas.unit * 0.08)
    if not palette.is_dark:
        birds(scene.of("birds"), (sun[0], sun[1]))


def _row(scene: Scene, nearness: float, chance: Chance) -> None:
    canvas, palette = scene.canvas, scene.palette
    unit = canvas.unit * (0.10 + 0.07 * nearness)
    houses, edges, windows, x = Shape(), Shape(), Shape(), -unit * chance.fraction()
    lit = 0.62 if palette.is_dark else 0.30
    count = 0
    while x < canvas.width:
        width = unit * chance.between(0.55, 1.25)
        tall = canvas.height * chance.between(0.22, 0.60) * (1.0 - 0.42 * nearness) + canvas.unit * 0.06
        top = canvas.height - tall
        _house(houses, chance, (x, top, width, tall))
        edges.rectangle(x + width * 0.72, top, width * 0.28, tall)
        if nearness > 0.3:
            count += _windows(windows, chance, (x, top, width, tall), lit, count)
        x += width * chance.between(0.92, 1.12)
    color = mix(distance(palette, nearness), palette.sky[0], 0.25)
    canvas.paint(houses, color, mix(color, palette.horizon, 0.35 * (1 - nearness)))
    canvas.paint(edges, shade(color, -0.05), alpha=0.6)
    canvas.paint(windows, lch(0.88, 0.13, 82), alpha=0.35 + 0.6 * nearness * (1.0 if palette.is_dark else 0.5))
    if palette.is_dark:
        _haze(canvas, palette, nearness)


def _house(shape: Shape, chance: Chance, box: tuple[float, float, float, float]) -> None:
    x, top, width, tall = box
    shape.rectangle(x, top, width, tall + 2)
    kind = chance.count(0, 5)
    if kind == 0:
        shape.rectangle(x + width * 0.2, top - width * 0.25, width * 0.6, width * 0.26)
        shape.rectangle(x + width * 0.35, top - width * 0.45, width * 0.3, width * 0.22)
    elif kind == 1:
        shape.polygon([(x, top + 1), (x + width, top + 1), (x + width, top - width * 0.35)])
    elif kind == 2:
        shape.polygon([(x + width * 0.1, top + 1), (x + width * 0.5, top - width * 0.8), (x + width * 0.9, top + 1)])
    elif kind == 3:
        shape.line([(x + width * 0.5, top + 1), (x + width * 0.5, top - width * 0.9)], max(1.0, width * 0.035))


def _windows(shape: Shape, chance: Chance, box: tuple[float, float, float, float], lit: float, before: int) -> int:
    x, top, width, tall = box
    across = chance.count(3, 5)
    gap = width / (across + 1)
    rows = int(tall / (gap * 1.5))
    added = 0
    for row in range(1, rows):
        for column in range(across):
            if chance.fraction() < lit and before + added < _WINDOWS_MAX:
                shape.rectangle(x + gap * (column + 0.72), top + row * gap * 1.5, gap * 0.5, gap * 0.72)
                added += 1
    return added


def _haze(canvas: Canvas, palette: Palette, nearness: float) -> None:
    canvas.glow(canvas.width / 2, canvas.height, max(canvas.image.size) * 0.7, palette.horizon, 0.22 * (1 - nearness))
