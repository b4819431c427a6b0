"""A worker stops while threads run that cannot be stopped: their jobs start elsewhere only after they have ended."""

from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_job_whose_thread_does_not_end_never_runs_in_two_workers(
    store_url: str, harness: Callable[..., Awaitable[WorkerHarness]]
) -> None:
    on = await harness(store_url, stop_grace_seconds=0.5)
    first = await on.start()
    handed_in = [await jobs.goes_on_in_a_thread.enqueue(), await jobs.goes_on_on_the_loop.enqueue()]
    for job in handed_in:
        await eventually(lambda job=job: on.handler_log.notes("going", job.id))
    await on.start()  # it is idle, and takes whatever is given back at once
    assert await first.stop() == 0
    for job in handed_in:
        ended = await on.final(job)
        assert (ended.state, ended.result, ended.attempt, ended.lost) == (State.SUCCEEDED, 2, 1, 0)
        assert await on.outcomes(job) == ["released", "succeeded"]
        last_of_first = on.handler_log.notes("going", job.id)[-1]["at"]
        [begun] = [note["at"] for note in on.handler_log.notes("started", job.id) if note["epoch"] == 2]
        assert last_of_first < begun, f"they ran together for {last_of_first - begun:.2f} s"
