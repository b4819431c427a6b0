"""The worker in another language: examples/worker.mjs, run by Node, against a real server."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Client, JobFailed
from tests.server.steps import Served
from tests.worker.in_process import until

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "examples/worker.mjs"
PATIENCE_SECONDS = 120


@pytest.fixture
def store_url(fresh_sqlite_url: str) -> str:
    """The worker sees no database, so one will do."""
    return fresh_sqlite_url


def node() -> str:
    """On the PATH, or where the benchmarks of other systems keep theirs."""
    cached = ROOT.glob(".cache/bench-peers/node*/bin/node")
    found = shutil.which("node") or next((str(path) for path in cached), None)
    if found is None:
        pytest.skip("node is not on the PATH: the JavaScript worker needs Node 18 or newer")
    return found


class Running:
    """Ended by its id."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def stop(self) -> tuple[int, str]:
        self.process.terminate()
        return await self.ended()

    async def ended(self) -> tuple[int, str]:
        """Its exit code, and what it complained of."""
        _, complaints = await asyncio.wait_for(self.process.communicate(), PATIENCE_SECONDS)
        return self.process.returncode or 0, complaints.decode()


async def start(url: str, key: str) -> Running:
    process = await asyncio.create_subprocess_exec(
        *(node(), str(WORKER), url),
        env={**os.environ, "HOLDFAST_WORKER_KEY": key, "HOLDFAST_STOP_GRACE_SECONDS": str(PATIENCE_SECONDS)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return Running(process)


@pytest.fixture
async def javascript(served: Served) -> AsyncIterator[Running]:
    running = await start(served.url, (await served.register(name="javascript"))["apiKey"])
    yield running
    if running.process.returncode is None:
        running.process.kill()
        await running.process.communicate()


@pytest.mark.slow
async def test_a_javascript_worker_completes_fails_and_polls_again(
    served: Served, client: Client, javascript: Running
) -> None:
    jobs = await client.create_many([{"job_type": "sum", "payload": {"numbers": [n, n, n]}} for n in range(12)])
    assert [await job.result(timeout=PATIENCE_SECONDS) for job in jobs] == [3 * n for n in range(12)]
    refused = await client.create("charge", {"card": "4242"})
    with pytest.raises(JobFailed, match="E_NO_CARD there is no card 4242"):
        await refused.result(timeout=PATIENCE_SECONDS)
    await asyncio.sleep(0.3)  # by now it waits in a long poll
    counted = await client.create("count", {"to": 3})
    assert await counted.result(timeout=PATIENCE_SECONDS) == 3
    view = await counted.get()
    assert view.progress is not None
    assert (view.progress.percent, view.progress.step) == (100, "counted to 3")
    assert (await served.engine.reads.get(counted.id)).epoch == 1
    assert await javascript.stop() == (0, "")


@pytest.mark.slow
async def test_a_javascript_worker_handles_a_cancel_and_sigterm(
    served: Served, client: Client, javascript: Running
) -> None:
    """A cancel reaches the handler with a beat; SIGTERM lets what runs end, and leaves the rest."""
    endless = await client.create("count", {"to": 10_000})
    await until(lambda: runs(client, endless.id), seconds=PATIENCE_SECONDS)
    assert await endless.cancel() == "RUNNING"
    with pytest.raises(JobFailed, match="CANCELED"):
        await endless.result(timeout=PATIENCE_SECONDS)
    last = await client.create("count", {"to": 40})
    await until(lambda: runs(client, last.id), seconds=PATIENCE_SECONDS)
    javascript.process.terminate()
    after = await client.create("sum", {"numbers": [1]})
    assert await javascript.ended() == (0, "")
    assert await last.result(timeout=PATIENCE_SECONDS) == 40
    await until(lambda: not_held(served, after.id), seconds=PATIENCE_SECONDS)


async def not_held(served: Served, job_id: str) -> bool:
    """If the claim that the worker gave up has leased it, the server releases it, or its lease expires."""
    return (await served.engine.reads.get(job_id)).lease_token is None


async def runs(client: Client, job_id: str) -> bool:
    return (await client.get(job_id)).status == "RUNNING"


@pytest.mark.slow
async def test_a_javascript_worker_with_an_invalid_key_exits_with_an_error(served: Served) -> None:
    running = await start(served.url, "no key at all")
    code, complaints = await running.ended()
    assert code == 1
    assert "claim:" in complaints
