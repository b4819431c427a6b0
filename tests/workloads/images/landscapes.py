"""Pictures of hills under a sky, drawn from a few numbers: nice to look at, and nobody's."""

from __future__ import annotations

import io
import math
import random
from typing import NamedTuple

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps


class Scene(NamedTuple):
    """From the top of the sky to its foot, the light in it, and from the farthest hills to the nearest."""

    sky: tuple[str, str, str]
    light: str
    hills: tuple[str, str]


SCENES = {
    "first-light": Scene(("#1f2a5c", "#b5527e", "#ffc38a"), "#fff1d6", ("#a3597f", "#1b1736")),
    "north-shore": Scene(("#0d3b66", "#3f88a8", "#cfe8e4"), "#ffffff", ("#6fa3b0", "#0c2d3f")),
    "old-forest": Scene(("#8fb8a8", "#cfdcae", "#f6efc7"), "#fffbe8", ("#7ba089", "#12301f")),
    "salt-desert": Scene(("#f0b67f", "#f7d6a5", "#fdf0d5"), "#ffffff", ("#dba067", "#6b2d1a")),
    "blue-hour": Scene(("#0b132b", "#2a3f73", "#8d99c8"), "#e9ecff", ("#4a5c96", "#080d1f")),
    "red-mesa": Scene(("#41102f", "#c8452f", "#ffb45e"), "#ffe9b8", ("#b8442f", "#2a0b17")),
    "spring-haze": Scene(("#9bc9e8", "#d8ecf2", "#fdf6ee"), "#ffffff", ("#a4c9c4", "#3d6b5a")),
    "violet-night": Scene(("#150b33", "#4b2a80", "#c786c9"), "#ffe6ff", ("#6d4494", "#12082b")),
}


def landscape(name: str, width: int, height: int, grain: int = 8) -> Image.Image:
    """The same for the same name, up to the grain, as of a film, which keeps encoders busy."""
    scene, chance = SCENES[name], random.Random(name)
    top, middle, foot = scene.sky
    picture = ImageOps.colorize(Image.linear_gradient("L").resize((width, height)), top, foot, mid=middle)
    _shine(picture, scene.light, chance)
    layers = 5
    for layer in range(layers):
        outline = _hills(width, height, height * (0.5 + 0.1 * layer), height * (0.07 + 0.015 * layer), chance)
        ImageDraw.Draw(picture).polygon(outline, _between(*scene.hills, layer / (layers - 1)))
    noise = Image.effect_noise((width, height), grain).convert("RGB")
    return ImageChops.overlay(picture, noise)


def encoded(picture: Image.Image, kind: str = "jpeg") -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, quality=90)
    return buffer.getvalue()


def _shine(picture: Image.Image, light: str, chance: random.Random) -> None:
    width, height = picture.size
    x, y, radius = width * chance.uniform(0.2, 0.8), height * chance.uniform(0.2, 0.42), height * 0.06
    glow = Image.new("L", picture.size)
    ImageDraw.Draw(glow).ellipse([x - 3 * radius, y - 3 * radius, x + 3 * radius, y + 3 * radius], 110)
    glow = glow.filter(ImageFilter.GaussianBlur(2 * radius))
    ImageDraw.Draw(glow).ellipse([x - radius, y - radius, x + radius, y + radius], 240)
    picture.paste(light, mask=glow)


def _hills(width: int, height: int, level: float, swing: float, chance: random.Random) -> list[tuple[float, float]]:
    waves = [(swing / rank, rank * chance.uniform(0.5, 1.2), chance.uniform(0, 2 * math.pi)) for rank in range(1, 7)]
    step = max(1, width // 300)
    ridge = [
        (x, level + sum(size * math.sin(2 * math.pi * often * x / width + shift) for size, often, shift in waves))
        for x in range(0, width + step, step)
    ]
    return [(0, height), *ridge, (width, height)]


def _between(first: str, second: str, share: float) -> tuple[int, ...]:
    ends = zip(*(Image.new("RGB", (1, 1), color).getpixel((0, 0)) for color in (first, second)), strict=True)
    return tuple(round(a + (b - a) * share) for a, b in ends)
