"""The breaker: it opens at the first failure, waits longer and longer, and never for long. R003-115, R003-117."""

import asyncio

import pytest

from holdfast.dispatch.breaker import CALM_SECONDS, PAUSE_MAX_SECONDS, PAUSE_SECONDS, Breaker, OutageLogger
from holdfast.ids import SeededIds
from tests.clocks import WholeClock


@pytest.fixture
def clock() -> WholeClock:
    return WholeClock()


@pytest.fixture
def breaker(clock: WholeClock) -> Breaker:
    return Breaker(clock, SeededIds(5))


def test_a_breaker_starts_closed(breaker: Breaker) -> None:
    assert (breaker.state, breaker.allows, breaker.pause, breaker.openings) == ("closed", True, 0, 0)


def test_one_failure_opens_the_breaker_until_the_pause_is_over(breaker: Breaker, clock: WholeClock) -> None:
    breaker.failed("gone")
    assert (breaker.state, breaker.allows, breaker.openings, breaker.reason) == ("open", False, 1, "gone")
    assert PAUSE_SECONDS / 2 <= breaker.pause <= PAUSE_SECONDS
    clock.advance(PAUSE_SECONDS)
    assert (breaker.state, breaker.allows, breaker.closed) == ("half_open", True, False)
    breaker.succeeded()
    assert (breaker.state, breaker.openings) == ("closed", 1)


def test_each_failure_doubles_the_pause_up_to_five_seconds(breaker: Breaker, clock: WholeClock) -> None:
    """R003-117, L6: used again within ten seconds of its return."""
    pauses = []
    for _ in range(50):
        breaker.failed()
        pauses.append(breaker.pause)
        clock.advance(breaker.pause + 0.001)
    longest = [min(PAUSE_MAX_SECONDS, PAUSE_SECONDS * 2**failures) for failures in range(50)]
    assert all(most / 2 <= pause <= most * 1.001 for pause, most in zip(pauses, longest, strict=True))
    assert len(set(pauses[10:])) > 20, "not all at the same moment"
    assert breaker.openings == 1, "it has never been closed in between"


def test_failures_are_forgotten_after_a_stable_period(breaker: Breaker, clock: WholeClock) -> None:
    for _ in range(8):
        breaker.failed()
        clock.advance(PAUSE_MAX_SECONDS)
    breaker.succeeded()
    clock.advance(CALM_SECONDS)
    breaker.failed()
    assert breaker.pause <= PAUSE_SECONDS
    assert breaker.openings == 2


def test_alternating_success_and_failure_lengthens_the_pause(breaker: Breaker, clock: WholeClock) -> None:
    """R003-115: a Redis that can be read and takes nothing more, or one that greets us and refuses the rest."""
    for _ in range(20):
        breaker.failed("full")
        breaker.succeeded()
        assert not breaker.allows, "whoever could read meanwhile has not sent anything"
        clock.advance(breaker.pause + 0.001)
        breaker.succeeded()
        assert breaker.closed
        clock.advance(0.5)
    breaker.failed("full")
    assert breaker.pause >= PAUSE_MAX_SECONDS / 2


def test_concurrent_failures_count_once(breaker: Breaker) -> None:
    for _ in range(10):
        breaker.failed()
    assert breaker.pause <= PAUSE_SECONDS


def test_listeners_are_notified_when_the_breaker_opens_and_closes(breaker: Breaker, clock: WholeClock) -> None:
    heard = []
    breaker.watchers.append(lambda: heard.append(breaker.closed))
    breaker.succeeded()
    breaker.failed()
    clock.advance(1)
    breaker.failed()
    clock.advance(1)
    breaker.succeeded()
    assert heard == [False, True]


async def test_a_flapping_broker_is_logged_once_until_it_is_stable(breaker: Breaker, clock: WholeClock) -> None:
    told: list[str] = []
    over = asyncio.Event()

    def back() -> None:
        told.append("back")
        over.set()

    OutageLogger(breaker, lost=told.append, back=back).calm_seconds = 0.05
    for _ in range(3):
        breaker.failed("full")
        breaker.failed("full")
        clock.advance(PAUSE_MAX_SECONDS)
        breaker.succeeded()
    assert told == ["full"]
    async with asyncio.timeout(60):
        await over.wait()
    assert told == ["full", "back"]
    breaker.failed("gone")
    assert told == ["full", "back", "gone"]
