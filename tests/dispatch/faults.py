"""What can happen to a broker while jobs run. Each is a time span: it begins, lasts while the block does, and ends."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from holdfast.dispatch.dispatch import Dispatch
from tests.dispatch.noise import Noise
from tests.dispatch.places import Place
from tests.dispatch.stories import beside
from tests.servers.proxy import Proxy

UNKNOWN = "0198c0de-0000-7000-8000-{:012x}"


class Scene(NamedTuple):
    place: Place
    wire: Proxy  # between the broker and half of those who use it
    chance: random.Random


Span = Callable[[Scene], AbstractAsyncContextManager[None]]


class Fault(NamedTuple):
    span: Span
    all_the_time: bool = False  # else in the middle of the run
    noise: Noise = Noise()

    def was_felt(self, place: Place, dispatches: list[Dispatch]) -> bool:
        """What nobody notices proves nothing."""
        if self.noise.lost or self.noise.doubled or self.noise.reordered:
            return self.noise.made > 0
        if self.span is littered:
            return sum(dispatch.tally["received", "garbage"] for dispatch in dispatches) > 0
        if self.span is emptied and not place.misses_its_messages:
            return True
        return any(dispatch.breaker.openings for dispatch in dispatches)


@contextlib.asynccontextmanager
async def nothing(scene: Scene) -> AsyncIterator[None]:
    yield


# -- the server ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def killed(scene: Scene) -> AsyncIterator[None]:
    """kill -9; and back with what it had on disk."""
    await asyncio.to_thread(scene.place.server.stop, kill=True)
    yield
    await asyncio.to_thread(scene.place.server.start)


@contextlib.asynccontextmanager
async def restarted_empty(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(scene.place.server.restart, kill=True, empty=True)
    yield


@contextlib.asynccontextmanager
async def frozen(scene: Scene) -> AsyncIterator[None]:
    """SIGSTOP, and SIGCONT later."""
    with scene.place.server.frozen():
        async with lasting(scene.place.patience_seconds):
            yield


# -- what it keeps -----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def emptied(scene: Scene) -> AsyncIterator[None]:
    async with again_and_again(scene.place.empty, every=0.1):
        yield


@contextlib.asynccontextmanager
async def taken_apart(scene: Scene) -> AsyncIterator[None]:
    async with again_and_again(lambda: scene.place.take_apart(scene.chance), every=0.2):
        yield


@contextlib.asynccontextmanager
async def littered(scene: Scene) -> AsyncIterator[None]:
    """Garbage, and lies: hints about jobs that do not exist, or in queues that nobody knows."""

    def trash() -> bytes:
        chance, unknown = scene.chance, UNKNOWN.format(scene.chance.getrandbits(48))
        lies = [f'["mail","works","{unknown}",0]', f'["nowhere",null,"{unknown}",5]', '["mail",null,null,-3]']
        return chance.choice([chance.randbytes(chance.randrange(600)), b"[" * 400, *(lie.encode() for lie in lies)])

    async def throw() -> None:
        for _ in range(5):
            await scene.place.litter(trash(), scene.chance)

    async with again_and_again(throw, every=0.01):
        yield


# -- the wire ----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def cut(scene: Scene) -> AsyncIterator[None]:
    await scene.wire.go_away()
    yield
    await scene.wire.come_back()


@contextlib.asynccontextmanager
async def flapping(scene: Scene) -> AsyncIterator[None]:
    """K17: twenty times in three seconds."""

    async def flap() -> None:
        for _ in range(20):
            await scene.wire.go_away()
            await asyncio.sleep(scene.chance.uniform(0.02, 0.12))
            await scene.wire.come_back()
            await asyncio.sleep(scene.chance.uniform(0.02, 0.12))

    flaps = asyncio.create_task(flap())
    yield
    await flaps


def silent(**ways: bool) -> Span:
    """Connections stay open, and what goes these ways is lost."""

    @contextlib.asynccontextmanager
    async def span(scene: Scene) -> AsyncIterator[None]:
        scene.wire.swallow(**ways)
        async with lasting(scene.place.patience_seconds):
            yield
        await scene.wire.come_back()

    return span


FAULTS = {
    "killed": Fault(killed),
    "restarted empty": Fault(restarted_empty),
    "frozen": Fault(frozen),
    "emptied": Fault(emptied),
    "taken apart": Fault(taken_apart),
    "littered": Fault(littered, True),
    "doubled": Fault(nothing, True, Noise(doubled=0.1)),
    "dropped": Fault(nothing, True, Noise(lost=0.1)),
    "reordered": Fault(nothing, True, Noise(reordered=0.5)),
    "cut": Fault(cut),
    "flapping": Fault(flapping),
    "silent": Fault(silent(requests=True, answers=True)),
    "deaf": Fault(silent(requests=True)),
    "mute": Fault(silent(answers=True)),
}


@contextlib.asynccontextmanager
async def lasting(seconds: float) -> AsyncIterator[None]:
    """The block lasts at least so long."""
    least = asyncio.create_task(asyncio.sleep(seconds))
    yield
    await least


@contextlib.asynccontextmanager
async def again_and_again(act: Callable[[], Awaitable[Any]], *, every: float) -> AsyncIterator[None]:
    """At least once."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(every)
            await act()

    await act()
    async with beside(go_on()):
        yield
