"""Hooks of an extension called `toy`, put straight into an engine."""

from collections.abc import Callable
from typing import Any

from holdfast.engine import Engine
from holdfast.model import JobType

TYPES = ("n", "a", "b", "image")


def guard(engine: Engine, *verbs: str, job_type: str | None = None) -> Callable[[Any], Any]:
    def keep(function: Any) -> Any:
        engine.ctx.hooks.guard("toy", verbs, [job_type] if job_type else TYPES, function)
        return function

    return keep


def effect(engine: Engine, *verbs: str, job_type: str | None = None) -> Callable[[Any], Any]:
    def keep(function: Any) -> Any:
        engine.ctx.hooks.effect("toy", verbs, [job_type] if job_type else TYPES, function)
        return function

    return keep


async def adopt(engine: Engine, *job_types: str) -> None:
    """Jobs that are there already need the hooks too, as when an app with an extension starts for the first time."""
    for name in job_types or TYPES:
        await engine.job_types.declare(JobType(name=name, lifecycle="default"))
