"""What stands at a path: found word by word, in the same time however many paths there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Router(Generic[T]):
    """`/jobs/{job_id}` stands for every `/jobs/...` of two words that is not written out as another path."""

    def __init__(self, things: Mapping[str, T]) -> None:
        self._written = {path: thing for path, thing in things.items() if "{" not in path}
        self._root: _Node[T] = _Node()
        for path, thing in things.items():
            self._root.grow(path.split("/")).thing = thing

    def find(self, path: str) -> tuple[T, dict[str, str]] | None:
        """The thing, and what the path says where it has names."""
        if (thing := self._written.get(path)) is not None:
            return thing, {}
        branch, said = self._root, {}
        for word in path.split("/"):
            if (next_one := branch.words.get(word)) is None:
                if branch.other is None or not word:
                    return None
                next_one, said[branch.name] = branch.other, word
            branch = next_one
        return None if branch.thing is None else (branch.thing, said)


class _Node(Generic[T]):
    __slots__ = ("name", "other", "thing", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.name = ""
        self.other: _Node[T] | None = None  # where any other word leads, which is called `name`
        self.thing: T | None = None

    def grow(self, words: list[str]) -> _Node[T]:
        branch = self
        for word in words:
            if not word.startswith("{"):
                branch = branch.words.setdefault(word, _Node())
                continue
            if branch.name not in ("", word[1:-1]):
                raise ValueError(f"one place in the paths has two names: {branch.name} and {word}")
            branch.other = branch.other or _Node()
            branch.name, branch = word[1:-1], branch.other
        return branch
