"""Workers that are killed at each step of a generation: it is completed by another one, and its image is paid once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock
from tests.cli.background import Background
from tests.worker.in_process import until
from tests.workloads.generation.dying_app import STEPS
from tests.workloads.generation.running import Running, provided_by, running, stub

__all__ = ["running", "stub"]

ROOT = str(Path(__file__).parents[3])
DYING = "tests.workloads.generation.dying_app:app"


@pytest.fixture
def clock() -> Clock:
    """Other processes have the real time."""
    return Clock()


@contextmanager
def dying_worker(running: Running, step: str) -> Iterator[Background]:
    """A process with the database, the storage and the provider of the service. It is killed at the step."""
    service = running.service
    mark = service.folder.with_name("reached")
    settings = provided_by(running.stub, storage_url=str(service.folder))
    variables: dict[str, Any] = {f"HOLDFAST_GENERATION_{name.upper()}": str(value) for name, value in settings.items()}
    variables |= {
        "HOLDFAST_DATABASE_URL": service.database_url,
        "GENERATION_STEP": step,
        "GENERATION_MARK": str(mark),
        "PYTHONPATH": ROOT,
    }
    command = ("worker", "--app", DYING, "--concurrency", "1")
    with Background(*command, folder=service.folder.parent, **variables) as process:
        yield process
        assert mark.exists()


async def killed(running: Running, step: str) -> None:
    engine = running.service.served.engine
    with dying_worker(running, step) as worker:
        await until(lambda: "worker process exited with SIGKILL" in worker.said)
        await asyncio.to_thread(worker.end)
    await engine.maintenance.reap(gone=await engine.polls.claiming_instances())  # as when two seconds have passed


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("provider", ["openai", "poll"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_generation_whose_worker_was_killed_is_completed_by_another(
    running: Running, step: str, provider: str
) -> None:
    running.stub.progress = ["processing", "succeeded"]
    accepted = await running.service.accepted(count=2, provider=provider)
    await killed(running, step)
    async with running.service.working():
        made = await running.finish(accepted)
        await running.until_idle()
    keys = [f"{accepted['jobId']}-{place}" for place in (0, 1)]
    await running.is_delivered(made, keys)
    assert running.paid() == dict.fromkeys(keys, 1)
    assert [key for key, *_ in await running.charges()] == keys
    assert (await running.service.statement())[1:] == [("reserve", 2), ("commit", 2)]
    await running.is_clean()
    assert len(await running.recorded()) == 4
