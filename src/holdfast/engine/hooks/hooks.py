"""Guards and effects: functions of extensions that run in the transaction of a verb, for the job types they name.

A guard gets the request before the transition and may refuse it. An effect gets the job after the transition, and its
writes commit with it. Both may await the transaction and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import Invalid, UnknownName
from holdfast.model.json import readable
from holdfast.store import Row, Tx

GUARDED = ("create", "accept", "claim", "complete", "fail", "release", "reject", "cancel", "requeue")
EFFECTIVE = (*GUARDED, "reap", "prune")

Guard = Callable[[Tx, Any], Awaitable[Any]]
Effect = Callable[[Tx, str, Any], Awaitable[None]]
Explanation = Callable[[Tx, Any], Awaitable[Any]]

log = logging.getLogger("holdfast.hooks")


def named(extension: str, function: object) -> str:
    return f"{extension}: {getattr(function, '__qualname__', repr(function))}"


class Hook(NamedTuple):
    extension: str
    function: Any
    batch: bool = False  # it gets all requests or jobs of a batch at once

    @property
    def name(self) -> str:
        return named(self.extension, self.function)


class Hooks:
    """The hooks of this process by verb and job type. `extensions` are all that it has, with or without hooks."""

    def __init__(self) -> None:
        self.extensions: tuple[str, ...] = ()
        self._guards: dict[tuple[str, str], list[Hook]] = {}
        self._effects: dict[tuple[str, str], list[Hook]] = {}
        self._needs: dict[str, list[str]] = {}
        self._explanations: dict[str, list[Hook]] = {}

    def add(self, extension: str) -> None:
        self.extensions = tuple(sorted({*self.extensions, extension}))

    def guard(
        self, extension: str, verbs: Iterable[str], job_types: Iterable[str], function: Guard, *, batch: bool = False
    ) -> None:
        self._keep(self._guards, GUARDED, "guard", Hook(extension, function, batch), verbs, job_types)

    def effect(
        self, extension: str, verbs: Iterable[str], job_types: Iterable[str], function: Effect, *, batch: bool = False
    ) -> None:
        self._keep(self._effects, EFFECTIVE, "effect", Hook(extension, function, batch), verbs, job_types)

    def explain(self, extension: str, job_types: Iterable[str], function: Explanation) -> None:
        """An explanation for `jobs why`. It is optional: its jobs also run in processes without the extension."""
        self.add(extension)
        for job_type in job_types:
            self._explanations.setdefault(job_type, []).append(Hook(extension, function))

    def explanations(self, job_type: str) -> list[Hook]:
        return self._explanations.get(job_type, [])

    def _keep(
        self,
        table: dict[tuple[str, str], list[Hook]],
        known: tuple[str, ...],
        what: str,
        hook: Hook,
        verbs: Iterable[str],
        job_types: Iterable[str],
    ) -> None:
        check_verbs(hook.extension, what, tuple(verbs), known)
        self.add(hook.extension)
        for job_type in job_types:
            self._needs[job_type] = sorted({*self._needs.get(job_type, ()), hook.extension})
            for verb in verbs:
                table.setdefault((verb, job_type), []).append(hook)

    def needs_of(self, job_type: str) -> list[str] | None:
        """The extensions with hooks on this type."""
        return self._needs.get(job_type)

    def missing(self, needs: list[str] | None) -> list[str]:
        """The needed extensions that this process does not have."""
        return [name for name in needs or () if name not in self.extensions]

    def missing_of(self, row: Row) -> list[str]:
        return self.missing(msgspec.json.decode(row["needs"])) if row["needs"] is not None else []

    def have(self, verb: str, job_type: str) -> bool:
        """Whether a type has hooks on this verb."""
        return (verb, job_type) in self._guards or (verb, job_type) in self._effects

    def guarded(self, verb: str) -> bool:
        """Whether any type has a guard on this verb."""
        return any(known == verb for known, _ in self._guards)

    def guards(self, verb: str, job_type: str) -> list[Hook]:
        return self._guards.get((verb, job_type), [])

    def effects(self, verb: str, job_type: str) -> list[Hook]:
        return self._effects.get((verb, job_type), [])


def error_text(error: BaseException | None, chars_max: int) -> str:
    """The error of an extension as text that every database can store."""
    try:
        text = f"{error}"
    except Exception:
        text = "the message cannot be shown"
    return readable(f"{type(error).__name__}: {text}")[:chars_max]


def warn_of_blocking(extension: str, function: object, seconds: float) -> None:
    log.warning(
        "extension %s blocked the event loop of this process for %.1f s; a hook must not run long computations, and "
        "must await nothing but its transaction",
        *(named(extension, function), seconds),
        extra={"extension": extension},
    )


def check_verbs(extension: str, what: str, verbs: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not verbs or not all(isinstance(verb, str) for verb in verbs):  # `@ext.guard` without parentheses
        raise Invalid(f"extension {extension!r}: name the verbs of a {what}: {', '.join(known)}", code="invalid_hook")
    for verb in verbs:
        if verb not in known:
            raise UnknownName.of("verb", verb, list(known), where=f"{what} of extension {extension!r}")
