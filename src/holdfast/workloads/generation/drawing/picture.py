"""One picture: what it shows, in which light and in which style."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image

from holdfast.workloads.generation.drawing.abstract import circles, flow, ribbons
from holdfast.workloads.generation.drawing.canvas import Canvas
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.city import city
from holdfast.workloads.generation.drawing.flowers import flowers
from holdfast.workloads.generation.drawing.land import desert, forest, mountains
from holdfast.workloads.generation.drawing.palette import palette
from holdfast.workloads.generation.drawing.sky import Scene
from holdfast.workloads.generation.drawing.space import space
from holdfast.workloads.generation.drawing.still import cat, portrait
from holdfast.workloads.generation.drawing.styles import drawn_small, styled
from holdfast.workloads.generation.drawing.water import sea
from holdfast.workloads.generation.drawing.words import ABSTRACT, Words

# What draws a thing, and the hue of its ground.
_SCENES: dict[str, tuple[Callable[[Scene], None], float]] = {
    "portrait": (portrait, 280),
    "cat": (cat, 285),
    "city": (city, 270),
    "sea": (sea, 232),
    "mountain": (mountains, 255),
    "forest": (forest, 165),
    "desert": (desert, 68),
    "space": (space, 275),
    "flower": (flowers, 140),
    "flow": (flow, 260),
    "circles": (circles, 260),
    "ribbons": (ribbons, 260),
}


def draw(prompt: str, negative: str, style: str, seed: int, size: tuple[int, int]) -> Image.Image:
    chance = Chance(prompt, negative, style, seed)
    words = Words(f"{prompt} {style}", negative)
    drawing, hue = _SCENES[words.thing or Chance(prompt).pick(ABSTRACT)]
    turn = Chance(style).between(-18, 18) if style else 0.0
    canvas = Canvas(Image.new("RGB", _reduced(size, drawn_small(style))))
    drawing(Scene(canvas, palette(words, chance.of("palette"), turn, hue), chance, words))
    image = styled(canvas.image, style, chance.of("style"))
    return image if image.size == size else image.resize(size, Image.Resampling.NEAREST)


def _reduced(size: tuple[int, int], shorter: int | None) -> tuple[int, int]:
    """So that a pixel of the smaller picture becomes a square of the larger one."""
    factor = max(2, min(size) // shorter) if shorter else 1
    return max(1, -(-size[0] // factor)), max(1, -(-size[1] // factor))
