"""What every verb needs besides its transaction: the lifecycles, the interned rows, hooks, chance, and the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from holdfast.clock import Clock
from holdfast.engine.hooks.hooks import Hooks
from holdfast.engine.registry import PolicyRegistry
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.model.hint import Hint, hints_of
from holdfast.store import Row
from holdfast.store.deferred_hints import DeferredHints
from holdfast.store.queries import Query


@dataclass(frozen=True)
class EngineLimits:
    """Bounds on every batch and every text, each overridable by a setting."""

    claim_max: int = 1000
    batch_max: int = 1000
    lanes_max: int = 256
    sweep_batch: int = 1000
    sweep_seconds: float = 10
    startup_grace_seconds: float = 120
    accept_orphans_seconds: float = 60
    error_max_chars: int = 4000
    checkpoint_bytes_max: int = 256 * 1024
    worker_json_bytes_max: int = 10_240
    hook_seconds: float = 10.0


_Answer = TypeVar("_Answer")
Observer = Callable[[Query, list[Row], str], None]


class Timing(Protocol):
    """Told of attempts that ended, so far as it wants to know."""

    def observes(self, query: Query) -> bool: ...

    def record(self, query: Query, rows: list[Row]) -> None: ...


Wake = Callable[[Sequence[Hint]], None]
Which = Callable[[Query], Query]  # `EngineContext.plain` or `EngineContext.mine`: which of the jobs a query is about


@dataclass
class EngineContext:
    clock: Clock
    ids: Ids
    lifecycles: Lifecycles
    registry: PolicyRegistry
    hooks: Hooks = field(default_factory=Hooks)
    limits: EngineLimits = field(default_factory=EngineLimits)
    observers: list[Observer] = field(default_factory=list)
    timing: Timing | None = None
    wakers: list[Wake] = field(default_factory=list)
    later: DeferredHints | None = None  # of the event loop whose connections the store and the wakers use
    reaped: int = 0  # leases that were taken away through this engine
    given_with_hooks: set[str] = field(default_factory=set)  # jobs that were claimed here and need hooks
    hook_failures: Counter[tuple[str, ...]] = field(default_factory=Counter)  # by extension and verb

    def mine(self, query: Query) -> Query:
        """The same query for the jobs that need the hooks of this process."""
        return query.with_hooks(self.hooks.extensions)

    @staticmethod
    def plain(query: Query) -> Query:
        """The query as it is: for the jobs that need no hooks."""
        return query

    def wake(self, rows: Iterable[Row]) -> None:
        """Somebody waiting for these jobs should look now. Only a hint: nothing depends on it."""
        if self.wakers:
            self.hint(hints_of(rows))

    def hint(self, hints: Sequence[Hint]) -> None:
        if hints:
            for waker in self.wakers:
                waker(hints)
