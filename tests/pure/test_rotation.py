"""Rotation: live processes take turns, one at a time, and do not wait long for crashed ones."""

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


class SleepMovesClock(MovableClock):
    """A clock that sleeping moves; `after_sleep` is called after each sleep."""

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


def rotation_of(fleet: Fleet, clock: SleepMovesClock, seed: int = 7) -> Rotation:
    rotation = Rotation(clock, SeededIds(seed))
    rotation.update(fleet)
    return rotation


async def moments(rotation: Rotation, clock: SleepMovesClock, count: int) -> list[float]:
    """When it is its turn, so many times; what is done then takes a moment."""
    found = []
    for _ in range(count):
        await rotation.wait(EVERY, together=TOGETHER)
        found.append(clock.seconds)
        clock.advance(0.05)
    return found


async def waited(rotation: Rotation, clock: SleepMovesClock) -> float:
    began = clock.seconds
    await rotation.wait(EVERY, together=TOGETHER)
    return clock.seconds - began


@pytest.mark.parametrize("live", [1, FEW])
async def test_a_small_fleet_does_not_take_turns_and_uses_jitter(live: int) -> None:
    rotation = rotation_of(Fleet(live, 0), clock := SleepMovesClock())
    pauses = [await waited(rotation, clock) for _ in range(20)]
    assert all(0.75 * EVERY <= pause <= 1.25 * EVERY for pause in pauses)
    assert len(set(pauses)) > 10


@pytest.mark.parametrize("live", [FEW + 1, 50])
async def test_a_large_fleet_takes_turns_at_regular_intervals(live: int) -> None:
    """With different start times and slightly different clocks."""
    found: list[float] = []
    for place in range(live):
        clock = SleepMovesClock(START + timedelta(seconds=place * 1.7, milliseconds=place % 7))
        found += await moments(rotation_of(Fleet(live, place), clock, seed=place), clock, 4)
    all_started = live * 1.7 + 2 * TOGETHER * live
    steady = [at for at in sorted(found) if at > all_started][: 2 * live]
    assert all(TOGETHER - 0.1 <= after - before <= TOGETHER + 0.1 for before, after in pairwise(steady))


async def test_each_process_of_a_large_fleet_has_one_turn_per_round() -> None:
    found = await moments(rotation_of(Fleet(20, 13), clock := SleepMovesClock()), clock, 10)
    assert all(abs(after - before - 20 * TOGETHER) < 0.1 for before, after in pairwise(found))


async def test_the_last_process_does_not_wait_for_crashed_ones() -> None:
    """K22: as soon as it learns that the others are gone, every turn is its own."""
    seconds = 37.0
    rotation = rotation_of(Fleet(50, 49), clock := SleepMovesClock())
    clock.after_sleep = lambda: rotation.update(Fleet(1, 0)) if clock.seconds >= seconds else None
    assert await waited(rotation, clock) <= seconds + 1.25 * EVERY
    assert await waited(rotation, clock) <= 1.25 * EVERY


async def test_a_constantly_changing_fleet_still_gives_each_process_its_turn() -> None:
    """K10: each change may move the turn away again."""
    rotation = rotation_of(Fleet(20, 0), clock := SleepMovesClock())

    def next_turn_is_far() -> None:
        live = 20 + int(clock.seconds) % 2
        rotation.update(Fleet(live, (int(clock.seconds / TOGETHER) - 1) % live))

    clock.after_sleep = next_turn_is_far
    for _ in range(5):
        next_turn_is_far()
        assert await waited(rotation, clock) <= 21 * TOGETHER + 1.25 * EVERY


async def test_no_process_waits_longer_than_five_minutes() -> None:
    rotation = rotation_of(Fleet(1_000_000, 999_999), clock := SleepMovesClock())
    assert await waited(rotation, clock) <= WAIT_MAX_SECONDS == 300


async def test_a_clock_set_back_by_a_day_does_not_delay_the_next_turn() -> None:
    rotation = rotation_of(Fleet(10, 3), clock := SleepMovesClock())
    await rotation.wait(EVERY, together=TOGETHER)
    clock.advance(-86_400)
    assert await waited(rotation, clock) <= 11 * TOGETHER
