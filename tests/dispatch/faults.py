"""Faults of a broker while jobs run. Each is a context manager: the fault lasts for the duration of its block."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from holdfast.dispatch.dispatch import Dispatch
from tests.dispatch.backends import Backend
from tests.dispatch.harness import running_beside
from tests.dispatch.unreliable_broker import FaultRates
from tests.servers.proxy import Proxy

UNKNOWN = "0198c0de-0000-7000-8000-{:012x}"


class FaultContext(NamedTuple):
    backend: Backend
    proxy: Proxy  # between the broker and half of its clients
    rng: random.Random


Span = Callable[[FaultContext], AbstractAsyncContextManager[None]]


class Fault(NamedTuple):
    span: Span
    whole_run: bool = False  # otherwise only in the middle of the run
    rates: FaultRates = FaultRates()

    def was_noticed(self, backend: Backend, dispatches: list[Dispatch]) -> bool:
        """A fault without any effect would make the test pass for no reason."""
        if self.rates.dropped or self.rates.duplicated or self.rates.reordered:
            return self.rates.injected > 0
        if self.span is garbage:
            return sum(dispatch.tally["received", "garbage"] for dispatch in dispatches) > 0
        if self.span is purged and not backend.detects_lost_messages:
            return True
        return any(dispatch.breaker.openings for dispatch in dispatches)


@contextlib.asynccontextmanager
async def no_fault(context: FaultContext) -> AsyncIterator[None]:
    yield


# -- the server ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def killed(context: FaultContext) -> AsyncIterator[None]:
    """kill -9, then a restart with the data on disk."""
    await asyncio.to_thread(context.backend.server.stop, kill=True)
    yield
    await asyncio.to_thread(context.backend.server.start)


@contextlib.asynccontextmanager
async def restarted_empty(context: FaultContext) -> AsyncIterator[None]:
    await asyncio.to_thread(context.backend.server.restart, kill=True, empty=True)
    yield


@contextlib.asynccontextmanager
async def frozen(context: FaultContext) -> AsyncIterator[None]:
    """SIGSTOP, then SIGCONT."""
    with context.backend.server.frozen():
        async with at_least(context.backend.call_timeout_seconds):
            yield


# -- stored messages --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def purged(context: FaultContext) -> AsyncIterator[None]:
    async with repeated(context.backend.purge, every=0.1):
        yield


@contextlib.asynccontextmanager
async def deleted_objects(context: FaultContext) -> AsyncIterator[None]:
    async with repeated(lambda: context.backend.delete_objects(context.rng), every=0.2):
        yield


@contextlib.asynccontextmanager
async def garbage(context: FaultContext) -> AsyncIterator[None]:
    """Random bytes, and well-formed hints about jobs and queues that do not exist."""

    def message() -> bytes:
        rng, unknown = context.rng, UNKNOWN.format(context.rng.getrandbits(48))
        false_hints = [f'["mail","succeeds","{unknown}",0]', f'["nowhere",null,"{unknown}",5]', '["mail",null,null,-3]']
        return rng.choice([rng.randbytes(rng.randrange(600)), b"[" * 400, *(hint.encode() for hint in false_hints)])

    async def send() -> None:
        for _ in range(5):
            await context.backend.send_garbage(message(), context.rng)

    async with repeated(send, every=0.01):
        yield


# -- the network ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def cut(context: FaultContext) -> AsyncIterator[None]:
    await context.proxy.go_away()
    yield
    await context.proxy.come_back()


@contextlib.asynccontextmanager
async def flapping(context: FaultContext) -> AsyncIterator[None]:
    """K17: twenty times in three seconds."""

    async def flap() -> None:
        for _ in range(20):
            await context.proxy.go_away()
            await asyncio.sleep(context.rng.uniform(0.02, 0.12))
            await context.proxy.come_back()
            await asyncio.sleep(context.rng.uniform(0.02, 0.12))

    flaps = asyncio.create_task(flap())
    yield
    await flaps


def silent(**directions: bool) -> Span:
    """Connections stay open, but data in these directions is lost."""

    @contextlib.asynccontextmanager
    async def span(context: FaultContext) -> AsyncIterator[None]:
        context.proxy.swallow(**directions)
        async with at_least(context.backend.call_timeout_seconds):
            yield
        await context.proxy.come_back()

    return span


FAULTS = {
    "killed": Fault(killed),
    "restarted empty": Fault(restarted_empty),
    "frozen": Fault(frozen),
    "purged": Fault(purged),
    "deleted objects": Fault(deleted_objects),
    "garbage": Fault(garbage, True),
    "duplicated": Fault(no_fault, True, FaultRates(duplicated=0.1)),
    "dropped": Fault(no_fault, True, FaultRates(dropped=0.1)),
    "reordered": Fault(no_fault, True, FaultRates(reordered=0.5)),
    "cut": Fault(cut),
    "flapping": Fault(flapping),
    "silent": Fault(silent(requests=True, answers=True)),
    "requests lost": Fault(silent(requests=True)),
    "responses lost": Fault(silent(answers=True)),
}


@contextlib.asynccontextmanager
async def at_least(seconds: float) -> AsyncIterator[None]:
    """The block lasts at least this long."""
    least = asyncio.create_task(asyncio.sleep(seconds))
    yield
    await least


@contextlib.asynccontextmanager
async def repeated(act: Callable[[], Awaitable[Any]], *, every: float) -> AsyncIterator[None]:
    """Repeat in the background, at least once."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(every)
            await act()

    await act()
    async with running_beside(go_on()):
        yield
