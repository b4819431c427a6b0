"""What the words of a prompt ask for, as far as this package can draw it."""

from __future__ import annotations

import re

_THINGS = {
    "portrait": "portrait face person woman man girl boy lady queen king people human self selfie child",
    "cat": "cat kitten dog puppy fox wolf animal pet",
    "city": "city skyline street building tower urban skyscraper downtown cyberpunk town architecture",
    "sea": "sea ocean wave beach coast lake water island river ship boat sail harbor lighthouse surf underwater",
    "mountain": "mountain alp hill valley cliff peak landscape volcano canyon rock glacier nature",
    "forest": "forest tree wood jungle woodland pine",
    "desert": "desert dune sand sahara camel savanna",
    "space": "space galaxy planet nebula universe cosmos cosmic astronaut mars saturn alien rocket",
    "flower": "flower rose garden blossom bouquet tulip sunflower lotus botanical plant",
    "flow": "flow abstract hair wind swirl silk fluid dream smoke music",
    "circles": "circle geometric bauhaus shape bubble ball orb",
    "ribbons": "ribbon stripe band rainbow layer minimal",
}
_TIMES = {
    "night": "night midnight dark moon moonlit star starry moonlight",
    "sunset": "sunset evening dusk golden orange fire",
    "dawn": "dawn sunrise morning pink pastel soft mist misty fog foggy",
    "day": "day noon sunny blue bright summer sky",
}
_SEASONS = {
    "winter": "winter snow snowy ice icy frozen christmas",
    "autumn": "autumn fall october",
    "spring": "spring cherry sakura",
}
ABSTRACT = ("flow", "circles", "ribbons")


class Words:
    """Those of the prompt without those of the negative prompt, in their order."""

    def __init__(self, prompt: str, negative: str) -> None:
        unwanted = set(_split(negative))
        self._words = [word for word in _split(prompt) if word not in unwanted]

    @property
    def thing(self) -> str | None:
        return self._first(_THINGS)

    @property
    def time(self) -> str | None:
        return self._first(_TIMES)

    @property
    def season(self) -> str | None:
        return self._first(_SEASONS)

    def has(self, *words: str) -> bool:
        return any(word in self._words for word in words)

    def _first(self, names: dict[str, str]) -> str | None:
        known = {word: name for name, words in names.items() for word in _split(words)}
        return next((known[word] for word in self._words if word in known), None)


def _split(text: str) -> list[str]:
    """In the singular, as far as an English plural ends in s."""
    words = re.findall(r"\w+", text.lower())
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words]
