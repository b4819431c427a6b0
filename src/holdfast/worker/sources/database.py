"""A worker's source that uses the engine directly, without a server between it and the database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.lifecycle import Policy
from holdfast.model import Lease, Liveness, Part
from holdfast.model.reports import Advanced, Beat, HeldLease, Progress, Withdrawal, Withdrawn
from holdfast.worker.source import VERBS, Answers, Claims, Names, Report

POLL_FIRST_SECONDS = 0.05
POLL_SECONDS = 1.5
RESERVED_SECONDS = 0.05  # from a hint to the poll for the reserved slot: most hints are about other jobs
NEXT_MIN_SECONDS = 0.01  # between polls for tokens of a rate that other workers may take
THREADS_START_SECONDS = 0.002  # until handlers in threads have begun
POLICIES_MAX = 10_000


class PresenceProtocol(Protocol):
    """The presence of this process: its current instance name, all its names, and the hints that it receives."""

    @property
    def instance(self) -> str: ...

    @property
    def names(self) -> set[str]: ...

    @property
    def exact(self) -> bool:
        """Whether a hint means that there is work, not only that something changed."""
        ...

    async def wait(self, seconds: float) -> bool:
        """True as soon as a hint arrives; False after `seconds`."""
        ...


class Hints(Protocol):
    """Delivers the hints of a broker to this worker, and learns what it does with them."""

    @property
    def floor_seconds(self) -> float:
        """The longest poll interval without a hint."""
        ...

    def waiting(self) -> AbstractContextManager[None]: ...

    def looking(self, wanted: int) -> AbstractContextManager[list[str]]:
        """While it claims or polls; the claimed job ids go into the list."""
        ...

    def given_up(self, jobs: list[str]) -> None: ...


class NoBroker:
    """Hints come from the database alone."""

    def __init__(self, floor_seconds: float) -> None:
        self.floor_seconds = floor_seconds

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def looking(self, wanted: int) -> AbstractContextManager[list[str]]:
        return nullcontext([])

    def given_up(self, jobs: list[str]) -> None: ...

    async def run(self) -> None:
        """Nothing to listen to."""


class DatabaseSource:
    def __init__(
        self, engine: Engine, presence: PresenceProtocol, clock: Clock, *, worker: str, hints: Hints | None = None
    ) -> None:
        self.engine, self.worker = engine, worker
        self._presence = presence
        self._clock = clock
        self._hints = hints or NoBroker(POLL_SECONDS)
        self._no_broker = self._hints if isinstance(self._hints, NoBroker) else NoBroker(POLL_SECONDS)
        self._policies: dict[int, Policy] = {}
        engine.ctx.registry.forgotten.append(self._policies.clear)
        self._poll = self._pause = POLL_FIRST_SECONDS
        self._started = False  # the last claim found jobs, and no more

    async def claim(self, limit: int, *, queues: Names, types: Names, reserved: bool = False) -> Claims:
        hints = self._no_broker if reserved else self._hints
        if self._started and self.engine.store.transaction_class.one_writer:
            # A handler in a thread that takes the GIL for long must take it before this process locks the file.
            await self._clock.sleep(THREADS_START_SECONDS)
        with hints.looking(limit) as claimed:
            leases = await self.engine.claim(
                self.worker, limit=limit, queues=queues, types=types, instance=self._presence.instance, at_once=True
            )
            claimed += [lease.id for lease in leases]
        self._started = 0 < len(leases) < limit
        self._poll = self._pause = POLL_FIRST_SECONDS if leases else self._slower(hints)
        if (tokens_in := self.engine.ctx.tokens_in()) is not None:
            self._pause = min(self._pause, tokens_in)
        return await self._with_policies(leases)

    async def recover_claims(self, known: set[str]) -> Claims:
        held = [held for held in await self.held() if held.token not in known]
        if not held:
            return []
        lost = set((await self.engine.heartbeat(self.worker, held)).lost)
        return await self._with_policies(await self.engine.polls.leases([one for one in held if one.id not in lost]))

    async def _with_policies(self, leases: list[Lease]) -> Claims:
        return [(lease, self._policies.get(lease.policy) or await self._policy(lease.policy)) for lease in leases]

    async def _policy(self, number: int) -> Policy:
        if len(self._policies) >= POLICIES_MAX:  # jobs with their own policies are unbounded
            self._policies.clear()
        found = self._policies[number] = (await self.engine.reads.snapshot(number)).policy
        return found

    async def wait(self, seconds: float, queues: Names = None, types: Names = None, *, reserved: bool = False) -> bool:
        """Polls after a hint, and now and then without one, since hints can be lost."""
        hints, until = self._no_broker if reserved else self._hints, self._clock.monotonic() + seconds
        self._pause = min(self._pause, hints.floor_seconds) if reserved else self._pause
        while (left := until - self._clock.monotonic()) > 0:
            with hints.waiting():
                hint = await self._presence.wait(min(left, self._pause))
            if hint:
                self._poll = POLL_FIRST_SECONDS  # it may be for a job that is not due yet: poll again soon
                if reserved:
                    await self._clock.sleep(RESERVED_SECONDS)
                elif self._presence.exact:
                    return True
            elif left < self._pause:
                self._pause -= left
                return False
            with hints.looking(1):
                seen = await self.engine.polls.poll(self.worker, queues, types)
            if seen.any:
                return True
            self._poll = self._slower(hints)
            self._pause = self._poll if seen.next_in is None else min(self._poll, max(NEXT_MIN_SECONDS, seen.next_in))
        return False

    def _slower(self, hints: Hints) -> float:
        return min(hints.floor_seconds, self._poll * 2)

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat:
        return await self.engine.heartbeat(self.worker, leases, liveness=liveness, slots=slots)

    async def stop_requests(self, leases: list[HeldLease]) -> list[HeldLease]:
        return await self.engine.polls.to_stop(self.worker, leases)

    async def progress(self, reports: list[Progress]) -> Sequence[Advanced | HoldfastError]:
        return await self.engine.progress_many(self.worker, reports)

    async def settle(self, reports: Sequence[Report]) -> Answers:
        verb = VERBS[type(reports[0])]
        if verb in ("fail", "release"):
            self._hints.given_up([report.id for report in reports])
        answers: Answers = await getattr(self.engine, f"{verb}_many")(self.worker, reports)
        return answers

    async def parts(self, job_id: str) -> list[Part]:
        return await self.engine.reads.parts(job_id)

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        return await self.engine.withdraw(self.worker, asked)

    async def held(self) -> list[HeldLease]:
        return await self.engine.polls.held_by(self.worker, *self._presence.names)

    async def close(self) -> None:
        await self.engine.close()
