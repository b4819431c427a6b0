"""Runs two transactions statement by statement, in every possible order.

Each session runs a verb of the engine on a connection of its own and stops at a gate before BEGIN, before every
statement and before COMMIT. The scheduler opens one gate at a time. Where both sessions stand at a gate, either may go
first: that is a choice, and `every_order` repeats the story until each choice was made both ways. A session that waits
for a lock of the other stands at no gate, PostgreSQL says so, and then the other must go on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.store import Row, Tx
from holdfast.store.postgres import PostgresTx
from holdfast.store.queries import Query

Verb = Callable[[Tx], Awaitable[Any]]

GLANCE_SECONDS = 0.002  # after which it is worth asking PostgreSQL whether a statement waits for a lock
HANG_SECONDS = 60
CHOICES_MAX = 200


class GatedTx(PostgresTx):
    """A transaction that waits for its turn before every statement."""

    def __init__(self, session: Session, clock: Clock) -> None:
        super().__init__(session.connection, clock)
        self._session = session

    async def all(self, query: Query, **params: Any) -> list[Row]:
        await self._session.gate(query.name)
        return await super().all(query, **params)


class Session:
    """One verb on one connection. `at` names the step it waits to take; None while it takes one, and at its end."""

    def __init__(self, name: str, connection: Any) -> None:
        self.name = name
        self.connection = connection
        self.pid: int = connection.get_server_pid()
        self.steps: list[str] = []
        self.at: str | None = None
        self.answer: Any = None

    def begin(self, verb: Verb, clock: Clock) -> None:
        self.steps, self.answer = [], None
        self._parked, self._turn = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._run(verb, GatedTx(self, clock)))
        self.task.add_done_callback(lambda _: self._parked.set())

    async def _run(self, verb: Verb, tx: GatedTx) -> None:
        await self.gate("BEGIN")
        await self.connection.execute("BEGIN")
        try:
            self.answer, end = await verb(tx), "COMMIT"
        except HoldfastError as error:
            self.answer, end = error, "ROLLBACK"
        await self.gate(end)
        await self.connection.execute(end)

    async def gate(self, step: str) -> None:
        self.at = step
        self._parked.set()
        await self._turn.wait()
        self._turn.clear()
        self.at = None
        self.steps.append(step)

    @property
    def done(self) -> bool:
        return self.task.done()

    def go(self) -> None:
        self._parked.clear()
        self._turn.set()

    async def parked(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._parked.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Scheduler:
    def __init__(self, sessions: tuple[Session, Session], watcher: Any, clock: Clock) -> None:
        self._sessions = sessions
        self._watcher = watcher
        self._clock = clock

    async def every_order(self, set_scene: Callable[[], Awaitable[tuple[Verb, Verb]]]) -> AsyncIterator[list[str]]:
        """The steps of each order once it was played, every time on a new scene."""
        waiting: list[list[int]] = [[]]
        while waiting:
            choices = waiting.pop()
            given = len(choices)
            trace = await self._play(await set_scene(), choices)
            waiting += [[*choices[:place], 1] for place in range(given, len(choices))]
            yield trace

    async def some_orders(
        self, set_scene: Callable[[], Awaitable[tuple[Verb, Verb]]], chance: random.Random, plays: int
    ) -> AsyncIterator[list[str]]:
        """So many random orders, for verbs that have too many: in some both often alternate, in some hardly."""
        for _ in range(plays):
            first = chance.random()
            choices = [int(chance.random() > first) for _ in range(CHOICES_MAX)]
            yield await self._play(await set_scene(), choices)

    async def _play(self, verbs: tuple[Verb, Verb], choices: list[int]) -> list[str]:
        """Follow the choices, then always the first session that can go; what is chosen is added to `choices`."""
        for session, verb in zip(self._sessions, verbs, strict=True):
            session.begin(verb, self._clock)
            await session.parked(HANG_SECONDS)
        trace: list[str] = []
        made = 0
        while ready := [session for session in self._sessions if session.at]:
            if len(ready) == 2:
                if made == len(choices):
                    choices.append(0)
                ready = [ready[choices[made]]]
                made += 1
            [session] = ready
            trace.append(f"{session.name} {session.at}")
            session.go()
            await self._settled(session)
        for session in self._sessions:
            await session.task
        return trace

    async def _settled(self, session: Session) -> None:
        """Wait until the step is taken or cannot be. The end of a transaction frees the other, if it had to wait."""
        [other] = [each for each in self._sessions if each is not session]
        for _ in range(int(HANG_SECONDS / GLANCE_SECONDS)):
            if await session.parked(GLANCE_SECONDS):
                break
            if not other.done and await self._waits_for(session, other):
                return
        else:
            raise AssertionError(f"{session.name} hangs in {session.steps[-1]}")
        if session.done and not other.done and other.at is None:
            await self._settled(other)

    async def _waits_for(self, session: Session, other: Session) -> bool:
        return bool(await self._watcher.fetchval("SELECT $1 = ANY(pg_blocking_pids($2))", other.pid, session.pid))
