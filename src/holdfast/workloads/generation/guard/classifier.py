"""Classifiers of prompts: plug-ins of the entry point group `holdfast.generation.classifiers`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol, cast

import msgspec

from holdfast.errors import Invalid
from holdfast.workloads.generation.settings import Settings

GROUP = "holdfast.generation.classifiers"


class Verdict(msgspec.Struct, frozen=True):
    """`category` says why a prompt is not allowed, for the audit."""

    allowed: bool
    category: str = ""


class ClassifierUnavailable(Exception):
    """There is no verdict. `retry_after`: seconds, if the classifier names them. The message is for operators."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message, self.retry_after = message, retry_after


class Classifier(Protocol):
    """Raises `ClassifierUnavailable`, and nothing else."""

    async def classify(self, prompt: str) -> Verdict: ...

    async def close(self) -> None: ...


def load_classifier(settings: Settings) -> Classifier | None:
    """The one that the settings name; an entry point is a function of the settings that makes it. Raises `Invalid`."""
    return cast(Classifier, _factory(settings.classifier)(settings)) if settings.classifier else None


@cache
def _factory(name: str) -> Callable[[Settings], object]:
    """Reading the entry points of all distributions takes milliseconds."""
    found = entry_points(group=GROUP)
    if name not in found.names:
        raise Invalid(f"there is no classifier {name!r}; installed: {', '.join(sorted(found.names)) or 'none'}")
    try:
        return cast(Callable[[Settings], object], found[name].load())
    except (ImportError, AttributeError) as error:
        raise Invalid(f"the classifier {name!r} cannot be loaded: {error}") from error
