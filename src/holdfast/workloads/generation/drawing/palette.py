"""The colors of a picture: light of a time of day, a ground, and accents."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import Color, lch
from holdfast.workloads.generation.drawing.words import Words

# Lightness, chroma and hue: of the sky from its top down, and of the sun or the moon.
_SKIES: dict[str, tuple[tuple[float, float, float], ...]] = {
    "day": ((0.56, 0.12, 248), (0.74, 0.10, 232), (0.90, 0.05, 205), (0.97, 0.05, 100)),
    "sunset": ((0.34, 0.11, 288), (0.58, 0.17, 12), (0.84, 0.14, 72), (0.95, 0.11, 88)),
    "dawn": ((0.62, 0.09, 272), (0.80, 0.08, 345), (0.93, 0.06, 68), (0.98, 0.05, 80)),
    "dusk": ((0.26, 0.09, 275), (0.45, 0.12, 305), (0.76, 0.12, 40), (0.93, 0.09, 60)),
    "night": ((0.15, 0.05, 272), (0.25, 0.08, 264), (0.42, 0.09, 238), (0.96, 0.03, 95)),
    "fantasy": ((0.30, 0.14, 300), (0.55, 0.18, 345), (0.82, 0.12, 20), (0.96, 0.06, 60)),
}
_UNSPOKEN = ("day", "sunset", "dawn", "dusk", "night", "fantasy")
_DRIFT = 22  # degrees by which the hues of two pictures of the same time may differ


class Palette(NamedTuple):
    time: str
    sky: tuple[Color, ...]
    light: Color
    hue: float  # of the ground
    near: Color
    accents: tuple[Color, ...]

    @property
    def horizon(self) -> Color:
        return self.sky[-1]

    @property
    def is_dark(self) -> bool:
        return self.time in ("night", "dusk")


def palette(words: Words, chance: Chance, turn: float, hue: float) -> Palette:
    """`turn`: degrees that all hues are turned by; `hue`: that of the ground."""
    time = words.time or chance.pick(_UNSPOKEN)
    turn += chance.between(-_DRIFT, _DRIFT)
    *sky, light = (lch(lightness, chroma, angle + turn) for lightness, chroma, angle in _SKIES[time])
    hue = {"autumn": 50.0, "spring": 135.0, "winter": 245.0}.get(words.season or "", hue) + turn
    near = lch(0.17 if time in ("night", "dusk") else 0.26, 0.05, hue)
    return Palette(time, tuple(sky), light, hue, near, _accents(chance))


def _accents(chance: Chance) -> tuple[Color, ...]:
    start, step = chance.between(0, 360), chance.pick((28, 52, 72, 137, 150))
    chroma = chance.between(0.10, 0.17)
    return tuple(lch((0.42, 0.58, 0.70, 0.80, 0.90)[n], chroma * (1.1 - 0.12 * n), start + step * n) for n in range(5))
