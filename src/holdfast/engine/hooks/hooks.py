"""Guards and effects: functions of extensions that run in the same transaction as a move, for the job types they name.

A guard sees the request before the move and may refuse it. An effect sees the moved job and writes what must be true
together with the move. Both may await the transaction and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.errors import Invalid, UnknownName
from holdfast.model.json import readable
from holdfast.store import Row, Tx

GUARDED = ("create", "accept", "claim", "complete", "fail", "release", "reject", "cancel", "requeue")
EFFECTIVE = (*GUARDED, "reap", "prune")

Guard = Callable[[Tx, Any], Awaitable[Any]]
Effect = Callable[[Tx, str, Any], Awaitable[None]]
Explanation = Callable[[Tx, Any], Awaitable[Any]]
_Function = TypeVar("_Function", Guard, Effect)

log = logging.getLogger("holdfast.hooks")


def named(extension: str, function: object) -> str:
    return f"{extension}: {getattr(function, '__qualname__', repr(function))}"


class Hook(NamedTuple):
    extension: str
    function: Any

    @property
    def name(self) -> str:
        return named(self.extension, self.function)


class Hooks:
    """By verb and job type. `extensions` are all that this process has, with hooks or without."""

    def __init__(self) -> None:
        self.extensions: tuple[str, ...] = ()
        self._guards: dict[tuple[str, str], list[Hook]] = {}
        self._effects: dict[tuple[str, str], list[Hook]] = {}
        self._needs: dict[str, list[str]] = {}
        self._explanations: dict[str, list[Hook]] = {}

    def add(self, extension: str) -> None:
        self.extensions = tuple(sorted({*self.extensions, extension}))

    def guard(self, extension: str, verbs: Iterable[str], job_types: Iterable[str], function: Guard) -> None:
        self._keep(self._guards, GUARDED, "guard", Hook(extension, function), verbs, job_types)

    def effect(self, extension: str, verbs: Iterable[str], job_types: Iterable[str], function: Effect) -> None:
        self._keep(self._effects, EFFECTIVE, "effect", Hook(extension, function), verbs, job_types)

    def explain(self, extension: str, job_types: Iterable[str], function: Explanation) -> None:
        """For `jobs why`. It moves nothing, so no job needs it."""
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
        """The extensions that have hooks on this type."""
        return self._needs.get(job_type)

    def missing(self, needs: list[str] | None) -> list[str]:
        """Those of the extensions that a job needs that this process does not have."""
        return [name for name in needs or () if name not in self.extensions]

    def missing_of(self, row: Row) -> list[str]:
        return self.missing(msgspec.json.decode(row["needs"])) if row["needs"] is not None else []

    def have(self, verb: str, job_type: str) -> bool:
        """Has an extension a say in this move?"""
        return (verb, job_type) in self._guards or (verb, job_type) in self._effects

    def guarded(self, verb: str) -> bool:
        """Is there a guard on this verb, whatever the job type?"""
        return any(known == verb for known, _ in self._guards)

    def guards(self, verb: str, job_type: str) -> list[Hook]:
        return self._guards.get((verb, job_type), [])

    def effects(self, verb: str, job_type: str) -> list[Hook]:
        return self._effects.get((verb, job_type), [])


def told(error: BaseException | None, chars_max: int) -> str:
    """An error of an extension's, as text that every database can keep."""
    try:
        says = f"{error}"
    except Exception:
        says = "what it says cannot be shown"
    return readable(f"{type(error).__name__}: {says}")[:chars_max]


def warn_of_blocking(extension: str, function: object, seconds: float) -> None:
    log.warning(
        "extension %s held up all other work of this process for %.1f s; it must compute nothing that takes long, and "
        "wait for nothing but its transaction",
        *(named(extension, function), seconds),
        extra={"extension": extension},
    )


def check_verbs(extension: str, what: str, verbs: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not verbs or not all(isinstance(verb, str) for verb in verbs):  # `@ext.guard` without its brackets
        raise Invalid(f"extension {extension!r}: name the verbs of a {what}: {', '.join(known)}", code="invalid_hook")
    for verb in verbs:
        if verb not in known:
            raise UnknownName.of("verb", verb, list(known), where=f"{what} of extension {extension!r}")
