"""What every verb needs besides its transaction: clock, ids, lifecycles, policies, hooks, limits and observers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.clock import Clock
from holdfast.engine.hooks.hooks import Hooks
from holdfast.engine.lanes import LaneCursors
from holdfast.engine.registry import PolicyRegistry
from holdfast.engine.turns import LastTaken, Turn, Turns
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.model.hint import Hint, hints_of
from holdfast.store import Row
from holdfast.store.deferred_hints import DeferredHints
from holdfast.store.queries import Query


@dataclass(frozen=True)
class EngineLimits:
    """Limits of batches, texts and times; a setting overrides each."""

    claim_max: int = 1000
    batch_max: int = 1000
    lanes_max: int = 128  # that one read of a claim sees
    sweep_batch: int = 1000
    sweep_seconds: float = 10
    startup_grace_seconds: float = 120
    accept_orphans_seconds: float = 60
    error_max_chars: int = 4000
    checkpoint_bytes_max: int = 256 * 1024
    worker_json_bytes_max: int = 10_240
    hook_seconds: float = 10.0
    ageing_seconds: float | None = None  # of waiting that count as one step of priority; None: age does not count


GIVEN_MAX = 100_000  # jobs that an engine remembers to have leased

Observer = Callable[[Query, list[Row], str], None]


class Timing(Protocol):
    """Measures ended attempts; `observes` says of which transitions."""

    def observes(self, query: Query) -> bool: ...

    def record(self, query: Query, rows: list[Row]) -> None: ...


Wake = Callable[[Sequence[Hint]], None]
Which = Callable[[Query], Query]  # `EngineContext.plain` or `EngineContext.mine`: the jobs that a query covers


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
    ended: Callable[[list[str]], None] | None = None  # gets the ids of jobs after the commit that ended them
    later: DeferredHints | None = None  # on the event loop of the store's connections and the wakers
    turns: Turns = field(default_factory=Turns)
    lane_cursors: LaneCursors = field(default_factory=LaneCursors)
    only_lanes: dict[tuple[object, ...], tuple[int, float]] = field(default_factory=dict)  # see LaneScope
    next_turns: dict[tuple[object, ...], tuple[deque[Turn], float]] = field(default_factory=dict)
    last_taken: dict[tuple[object, ...], LastTaken] = field(default_factory=dict)
    reaped: int = 0  # leases that this engine has reaped
    given_with_hooks: set[str] = field(default_factory=set)  # jobs with hooks that were claimed through this engine
    given_with_limits: dict[str, Hint] = field(default_factory=dict)  # whose end lets other jobs start
    tokens_at: float | None = None  # when a limit that stopped the last claim has tokens, by the monotonic clock
    hook_failures: Counter[tuple[str, ...]] = field(default_factory=Counter)  # by extension and verb

    def mine(self, query: Query) -> Query:
        """The query for jobs that need the hooks of this process."""
        return query.with_hooks(self.hooks.extensions)

    @staticmethod
    def plain(query: Query) -> Query:
        """The query for jobs that need no hooks: unchanged."""
        return query

    def observes(self, query: Query) -> bool:
        """Observers, or the timing of moves, get the rows of this query."""
        return bool(self.observers) or (self.timing is not None and self.timing.observes(query))

    def wake(self, rows: Iterable[Row]) -> None:
        """Hint waiting workers to claim these jobs now; they also find them without it, by polling."""
        if self.wakers:
            self.hint(hints_of(rows))

    def tokens_in(self) -> float | None:
        """Seconds until a claim that found too few tokens may find some."""
        waits = None if self.tokens_at is None else self.tokens_at - self.clock.monotonic()
        return waits if waits is not None and waits > 0 else None

    def gave_limited(self, leased: Iterable[Row]) -> None:
        """These jobs hold units of limits."""
        if len(self.given_with_limits) > GIVEN_MAX:  # jobs reported to another process, or never
            self.given_with_limits.clear()
        self.given_with_limits.update((row["id"], Hint(row["queue"], row["type"])) for row in leased)

    def freed_limited(self, ended: Iterable[Row]) -> None:
        """Those of the jobs that held units hold them no longer: workers that wait for these may claim."""
        freed = [self.given_with_limits.pop(row["id"], None) for row in ended]
        self.hint(list({hint for hint in freed if hint is not None}))

    def hint(self, hints: Sequence[Hint]) -> None:
        if hints:
            for waker in self.wakers:
                waker(hints)
