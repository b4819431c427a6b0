"""Pseudo-random numbers that depend on a key alone, in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

_Option = TypeVar("_Option")
_RANGE = float(2**64)


class Chance:
    def __init__(self, *key: object) -> None:
        self._key = hashlib.blake2b(repr(key).encode()).digest()
        self._count = 0

    def of(self, name: object) -> Chance:
        """Independent of what is drawn from this one."""
        return Chance(self._key, name)

    def fraction(self) -> float:
        return int.from_bytes(self._next().digest()[:8]) / _RANGE

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.fraction()

    def count(self, low: int, high: int) -> int:
        return low + int((high - low + 1) * self.fraction())

    def pick(self, options: Sequence[_Option]) -> _Option:
        return options[int(len(options) * self.fraction())]

    def bytes(self, size: int) -> bytes:
        return hashlib.shake_256(self._next().digest()).digest(size)

    def _next(self) -> hashlib.blake2b:
        self._count += 1
        return hashlib.blake2b(self._count.to_bytes(8), key=self._key)
