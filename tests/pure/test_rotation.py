"""Turns: one of all live processes at a time, each as often as any other, and nobody waits for the dead for long."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from holdfast.clock import MovableClock
from holdfast.ids import SeededIds
from holdfast.maintenance.rotation import FEW, WAIT_MAX_SECONDS, Rotation
from holdfast.model.reports import Fleet

EVERY, TOGETHER = 10.0, 5.0
START = datetime(2026, 1, 1, tzinfo=UTC)


class Steps(MovableClock):
    """Sleeping moves time; `after_sleep` is what happens meanwhile."""

    def __init__(self, start: datetime = START) -> None:
        super().__init__(start)
        self.after_sleep: Callable[[], None] = lambda: None

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        self.after_sleep()
        await asyncio.sleep(0)

    @property
    def seconds(self) -> float:
        return (self.now() - START).total_seconds()


def rotation_of(fleet: Fleet, clock: Steps, seed: int = 7) -> Rotation:
    rotation = Rotation(clock, SeededIds(seed))
    rotation.update(fleet)
    return rotation


async def moments(rotation: Rotation, clock: Steps, count: int) -> list[float]:
    """When it is its turn, so many times; what is done then takes a moment."""
    found = []
    for _ in range(count):
        await rotation.wait(EVERY, together=TOGETHER)
        found.append(clock.seconds)
        clock.advance(0.05)
    return found


async def waited(rotation: Rotation, clock: Steps) -> float:
    began = clock.seconds
    await rotation.wait(EVERY, together=TOGETHER)
    return clock.seconds - began


@pytest.mark.parametrize("live", [1, FEW])
async def test_a_few_do_it_each_for_itself_and_not_in_step(live: int) -> None:
    rotation = rotation_of(Fleet(live, 0), clock := Steps())
    pauses = [await waited(rotation, clock) for _ in range(20)]
    assert all(0.75 * EVERY <= pause <= 1.25 * EVERY for pause in pauses)
    assert len(set(pauses)) > 10


@pytest.mark.parametrize("live", [FEW + 1, 50])
async def test_of_many_one_does_it_at_a_time_and_all_together_do_it_regularly(live: int) -> None:
    """However they were started, and though no two clocks are quite alike."""
    found: list[float] = []
    for place in range(live):
        clock = Steps(START + timedelta(seconds=place * 1.7, milliseconds=place % 7))
        found += await moments(rotation_of(Fleet(live, place), clock, seed=place), clock, 4)
    all_started = live * 1.7 + 2 * TOGETHER * live
    steady = [at for at in sorted(found) if at > all_started][: 2 * live]
    assert all(TOGETHER - 0.1 <= after - before <= TOGETHER + 0.1 for before, after in pairwise(steady))


async def test_each_of_many_has_its_turn_once_in_a_round() -> None:
    found = await moments(rotation_of(Fleet(20, 13), clock := Steps()), clock, 10)
    assert all(abs(after - before - 20 * TOGETHER) < 0.1 for before, after in pairwise(found))


async def test_whoever_is_left_does_not_wait_for_the_dead() -> None:
    """K22: as soon as it hears that they are gone, all rotation are its own."""
    seconds = 37.0
    rotation = rotation_of(Fleet(50, 49), clock := Steps())
    clock.after_sleep = lambda: rotation.update(Fleet(1, 0)) if clock.seconds >= seconds else None
    assert await waited(rotation, clock) <= seconds + 1.25 * EVERY
    assert await waited(rotation, clock) <= 1.25 * EVERY


async def test_a_fleet_that_changes_all_the_time_keeps_nobody_from_its_turn() -> None:
    """K10: each change may move the turn away again."""
    rotation = rotation_of(Fleet(20, 0), clock := Steps())

    def next_turn_is_far() -> None:
        live = 20 + int(clock.seconds) % 2
        rotation.update(Fleet(live, (int(clock.seconds / TOGETHER) - 1) % live))

    clock.after_sleep = next_turn_is_far
    for _ in range(5):
        next_turn_is_far()
        assert await waited(rotation, clock) <= 21 * TOGETHER + 1.25 * EVERY


async def test_whatever_is_heard_nobody_waits_longer_than_five_minutes() -> None:
    rotation = rotation_of(Fleet(1_000_000, 999_999), clock := Steps())
    assert await waited(rotation, clock) <= WAIT_MAX_SECONDS == 300


async def test_a_clock_that_is_set_back_by_a_day_delays_nothing() -> None:
    rotation = rotation_of(Fleet(10, 3), clock := Steps())
    await rotation.wait(EVERY, together=TOGETHER)
    clock.advance(-86_400)
    assert await waited(rotation, clock) <= 11 * TOGETHER
