"""A rolling upgrade: workers of two versions of Holdfast, each installed from a wheel, on one database.

The newer one is this tree with one more knob in the policy. Old and new must do each other's jobs, and take over from
each other after a crash.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.assembly.engine import open_engine
from holdfast.engine import Engine
from holdfast.lifecycle import State
from holdfast.settings import Settings
from tests.cli.processes import environment
from tests.worker.real_processes.harness import eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

ROOT = Path(__file__).parents[2]
KNOB = "parking_seconds"
TASKS = """
import asyncio, pathlib, sys
import holdfast
from holdfast.lifecycle import Policy

app = holdfast.App()
newer = {"parking_seconds": 5} if "parking_seconds" in Policy.__struct_fields__ else {}

@app.job(**newer)
async def add(a: int, b: int) -> int:
    return a + b

@app.job(**newer)
async def hold(until: str) -> None:
    while not pathlib.Path(until).exists():
        await asyncio.sleep(0.05)

if __name__ == "__main__":
    print(add.enqueue_sync(1, 2).id, hold.enqueue_sync(sys.argv[1]).id)
    app.close_sync()
"""


class Version:
    """A wheel of the tree in an environment of its own; everything else comes from the environment of the tests."""

    def __init__(self, folder: Path, *, knob: str = "") -> None:
        tree = folder / "tree"
        shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree)
        if knob:
            policy = tree / "src/holdfast/lifecycle/policy.py"
            first = "    lease_seconds: float = 30\n"
            text = policy.read_text()
            assert first in text
            policy.write_text(text.replace(first, f"    {knob}: float = 1\n{first}"))
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv/bin/python"
        [packages] = (folder / "venv/lib").glob("python*/site-packages")
        others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (packages / "others.pth").write_text("\n".join(others))
        self._run("-m", "hatchling", "build", "-t", "wheel", cwd=tree)
        [wheel] = (tree / "dist").glob("*.whl")
        shutil.unpack_archive(wheel, packages, "zip")  # what installing a wheel without dependencies comes to
        place = self._run("-c", "import holdfast; print(holdfast.__file__)", cwd=folder)
        assert place.startswith(str(packages))

    def _run(self, *args: str, cwd: Path) -> str:
        return self._output([str(self.python), *args], cwd, {})

    def _output(self, command: list[str], cwd: Path, settings: dict[str, str]) -> str:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=False, env=environment(**settings)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def enqueue(self, cwd: Path, until: Path, settings: dict[str, str]) -> list[str]:
        """The ids of a job that adds, and of one that waits for a file."""
        return self._output([str(self.python), "tasks.py", str(until)], cwd, settings).split()

    @asynccontextmanager
    async def worker(self, cwd: Path, settings: dict[str, str]) -> AsyncIterator["Working"]:
        log = cwd / f"{self.python.parts[-4]}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(self.python, "-m", "holdfast.cli", "worker", "--app", "tasks:app"),
                cwd=cwd,
                env=environment(**settings),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        working = Working(process, log)
        try:
            yield working
        finally:
            await working.kill()


class Working:
    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self._log = process, log

    async def kill(self) -> None:
        """With all its processes, which are a session of their own."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
async def engine_there(fresh_postgres_url: str) -> AsyncIterator[Engine]:
    engine = await open_engine(Settings(database_url=fresh_postgres_url))
    yield engine
    await engine.close()


async def ended(engine: Engine, job_id: str) -> list[str]:
    """Once it has succeeded: what happened to it."""

    async def has_succeeded() -> bool:
        return (await engine.reads.get(job_id)).state is State.SUCCEEDED

    await eventually(has_succeeded)
    return [event.verb for event in await engine.reads.history(job_id)]


async def is_running(engine: Engine, job_id: str) -> bool:
    return (await engine.reads.get(job_id)).state is State.RUNNING


async def test_workers_of_two_versions_run_and_recover_each_others_jobs(
    fresh_postgres_url: str, engine_there: Engine, tmp_path: Path
) -> None:
    old, new = Version(tmp_path / "old"), Version(tmp_path / "new", knob=KNOB)
    (tmp_path / "tasks.py").write_text(TASKS)
    settings = {"HOLDFAST_DATABASE_URL": fresh_postgres_url}
    for creator, crashing, survivor in ((new, new, old), (old, old, new)):
        until = tmp_path / f"go-{creator.python.parts[-4]}"
        sum_id, hold_id = creator.enqueue(tmp_path, until, settings)
        async with crashing.worker(tmp_path, settings) as first:
            await eventually(lambda hold_id=hold_id: is_running(engine_there, hold_id))
            await first.kill()
            async with survivor.worker(tmp_path, settings) as second:
                more, _ = creator.enqueue(tmp_path, until, settings)
                assert await ended(engine_there, more) == ["create", "claim", "complete"]
                until.touch()
                history = await ended(engine_there, hold_id)
                assert history == ["create", "claim", "reap", "claim", "complete"]
                assert (await ended(engine_there, sum_id))[-1] == "complete"
                assert "Traceback" not in second.log
    assert KNOB in (tmp_path / "old.log").read_text(), "the old version says what it ignores"
