"""How jobs begin: many in one turn of the event loop, each in its own context, with a task of its own if it waits.

Each test runs on the way of Python 3.11, and where there are eager tasks on theirs, too.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.clock import Clock, turn
from holdfast.worker.first_steps import EAGER_TASKS, FirstSteps

WAYS = [False, True] if EAGER_TASKS else [False]
variable: ContextVar[str] = ContextVar("variable", default="unset")

pytestmark = pytest.mark.parametrize("eager_tasks", WAYS)


class Jobs:
    """Executes a function for each run; the run is what it is given."""

    def __init__(self, function: Callable[[Any], Any], eager_tasks: bool, clock: Clock | None = None) -> None:
        self.ended: list[int] = []
        self.left: list[Any] = []  # for `refill`
        self._function = function
        self.steps = FirstSteps(self._execute, self._refill, clock or Clock(), eager_tasks=eager_tasks)

    def add(self, *numbers: int, kind: str = "job") -> None:
        for number in numbers:
            self.steps.add(self.run(number, kind))

    def run(self, number: int, kind: str = "job") -> Any:
        return SimpleNamespace(number=number, lease=SimpleNamespace(type=kind), task=None)

    async def _execute(self, run: Any) -> None:
        run.task = asyncio.current_task()
        try:
            await self._function(run.number)
        except asyncio.CancelledError:
            run.number = -run.number
        self.ended.append(run.number)

    def _refill(self) -> None:
        left, self.left = self.left, []
        for run in left:
            self.steps.add(run)

    async def until_ended(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.ended) < count:
                await turn()


async def test_jobs_that_do_not_wait_need_no_turn_of_the_event_loop_each(eager_tasks: bool) -> None:
    class Stopped(Clock):
        def monotonic(self) -> float:
            return 0.0

    async def function(number: int) -> None:
        jobs.left += [jobs.run(number + 1)] if number < 200 else []

    jobs = Jobs(function, eager_tasks, Stopped())
    turns = await _turns_until(jobs, 200)
    assert jobs.ended == list(range(1, 201))
    assert turns <= 2


async def _turns_until(jobs: Jobs, count: int) -> int:
    jobs.add(1)
    turns = 0
    while len(jobs.ended) < count:
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_the_event_loop_has_a_turn_when_jobs_took_long(eager_tasks: bool) -> None:
    class Slow(Clock):
        now = 0.0

        def monotonic(self) -> float:
            self.now += 1.0  # between any two looks at it
            return self.now

    async def function(number: int) -> None:
        jobs.left += [jobs.run(number + 1)] if number < 20 else []

    jobs = Jobs(function, eager_tasks, Slow())
    assert await _turns_until(jobs, 20) >= 20


async def test_a_job_keeps_its_task_and_has_it_for_itself_while_it_waits(eager_tasks: bool) -> None:
    seen: dict[int, list[Any]] = {}

    async def function(number: int) -> None:
        seen[number] = [asyncio.current_task()]
        for _ in range(3):
            await asyncio.sleep(0)
            seen[number].append(asyncio.current_task())

    jobs = Jobs(function, eager_tasks)
    jobs.add(*range(5))
    await jobs.until_ended(5)
    assert all(len(set(tasks)) == 1 for tasks in seen.values())
    assert len({tasks[0] for tasks in seen.values()}) == 5


async def test_all_jobs_begin_even_if_each_waits_for_the_last(eager_tasks: bool) -> None:
    last = asyncio.Event()

    async def function(number: int) -> None:
        if number == 99:
            last.set()
        await last.wait()

    jobs = Jobs(function, eager_tasks)
    jobs.add(*range(100))
    await jobs.until_ended(100)


async def test_no_context_variable_leaks_from_job_to_job(eager_tasks: bool) -> None:
    seen: list[str] = []

    async def function(number: int) -> None:
        seen.append(variable.get())
        variable.set(f"of {number}")
        if number % 2:
            await asyncio.sleep(0)
        seen.append(variable.get())

    jobs = Jobs(function, eager_tasks)
    for number in range(10):
        jobs.add(number, kind=f"kind {number}")
    await jobs.until_ended(10)
    assert seen.count("unset") == 10
    assert {f"of {number}" for number in range(10)} < set(seen)
    assert variable.get() == "unset"


@pytest.mark.parametrize("waits", [False, True])
async def test_a_timeout_ends_the_wait_of_its_own_job(eager_tasks: bool, waits: bool) -> None:
    timed_out: list[int] = []

    async def function(number: int) -> None:
        try:
            async with asyncio.timeout(0.01 if waits else 30):
                await asyncio.sleep(30 if waits else 0)
        except TimeoutError:
            timed_out.append(number)

    jobs = Jobs(function, eager_tasks)
    jobs.add(*range(5))
    await jobs.until_ended(5)
    assert sorted(timed_out) == (list(range(5)) if waits else [])


async def test_a_cancelled_wait_is_that_of_its_own_job(eager_tasks: bool) -> None:
    never = asyncio.Event()

    async def function(number: int) -> None:
        if number == 3:
            await never.wait()

    jobs = Jobs(function, eager_tasks)
    third = jobs.run(3)
    jobs.add(1, 2)
    jobs.steps.add(third)
    jobs.add(4, 5)
    await jobs.until_ended(4)
    third.task.cancel()
    await jobs.until_ended(5)
    assert jobs.ended == [1, 2, 4, 5, -3]


async def test_a_job_that_cancels_its_own_task_does_not_cancel_the_next_one(eager_tasks: bool) -> None:
    async def function(number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if number == 1:
            task.cancel()
        elif number == 2:
            assert not task.cancelling()
            await asyncio.sleep(0)

    jobs = Jobs(function, eager_tasks)
    jobs.add(1, 2, 3)
    await jobs.until_ended(3)
    assert sorted(jobs.ended) == [1, 2, 3]


async def test_an_error_beside_the_handler_does_not_keep_other_jobs_from_beginning(eager_tasks: bool) -> None:
    async def function(number: int) -> None:
        if number == 1:
            raise RuntimeError("a bug of ours, on purpose")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: reported.append(about))
    jobs = Jobs(function, eager_tasks)
    jobs.add(1, 2, 3)
    await jobs.until_ended(2)
    assert jobs.ended == [2, 3]


async def test_jobs_that_wait_do_not_begin_one_by_one_in_turns_of_the_event_loop(eager_tasks: bool) -> None:
    begun: list[int] = []
    go = asyncio.Event()

    async def function(number: int) -> None:
        begun.append(number)
        await go.wait()

    jobs = Jobs(function, eager_tasks)
    jobs.add(*range(200))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(begun) == 200
    go.set()
    await jobs.until_ended(200)
