"""Guards and effects: functions of the app that run in the same transaction as a verb.

A guard sees the request before the move and raises `Refused` to stop it. An effect sees the moved row and writes what
must be true together with it. Both may await the transaction and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.errors import UnknownName
from holdfast.store import Row, Tx

GUARDED = ("create", "complete", "fail", "reject", "cancel")
EFFECTIVE = (*GUARDED, "reap")

Guard = Callable[[Tx, Any], Awaitable[None]]
Effect = Callable[[Tx, str, Row], Awaitable[None]]


@dataclass(frozen=True)
class _Scope:
    """Which jobs a hook is about; None means all."""

    lifecycle: str | None
    job_type: str | None

    def covers(self, lifecycle: str, job_type: str) -> bool:
        return self.lifecycle in (None, lifecycle) and self.job_type in (None, job_type)


class Hooks:
    def __init__(self) -> None:
        self._guards: dict[str, list[tuple[_Scope, Guard]]] = {}
        self._effects: dict[str, list[tuple[_Scope, Effect]]] = {}

    def guard(self, *verbs: str, lifecycle: str | None = None, job_type: str | None = None) -> Callable[[Guard], Guard]:
        return _register(self._guards, GUARDED, verbs, _Scope(lifecycle, job_type))

    def effect(
        self, *verbs: str, lifecycle: str | None = None, job_type: str | None = None
    ) -> Callable[[Effect], Effect]:
        return _register(self._effects, EFFECTIVE, verbs, _Scope(lifecycle, job_type))

    def any_for(self, verb: str) -> bool:
        return verb in self._guards or verb in self._effects

    def guarded(self, verb: str) -> bool:
        return verb in self._guards

    async def check(self, tx: Tx, verb: str, request: Any, lifecycle: str, job_type: str) -> None:
        for scope, guard in self._guards.get(verb, ()):
            if scope.covers(lifecycle, job_type):
                await guard(tx, request)

    async def apply(self, tx: Tx, verb: str, rows: list[Row]) -> None:
        for scope, effect in self._effects.get(verb, ()):
            for row in rows:
                if scope.covers(row["lifecycle"], row["type"]):
                    await effect(tx, verb, row)


_Hook = TypeVar("_Hook")


def _register(
    table: dict[str, list[tuple[_Scope, _Hook]]], known: tuple[str, ...], verbs: tuple[str, ...], scope: _Scope
) -> Callable[[_Hook], _Hook]:
    for verb in verbs:
        if verb not in known:
            raise UnknownName.of("verb", verb, list(known))

    def keep(hook: _Hook) -> _Hook:
        for verb in verbs:
            table.setdefault(verb, []).append((scope, hook))
        return hook

    return keep
