"""Real `holdfast worker` commands on a database of their own, and what they leave: logs, a handler log, processes."""

import asyncio
import contextlib
import inspect
import os
import secrets
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from holdfast.engine import Engine
from holdfast.lifecycle import FINAL, State
from holdfast.model import Attempt, Job
from holdfast.sdk.handle import JobHandle
from holdfast.settings import Settings, values_of
from holdfast.store.migrate import sqlite_path
from tests.cli.processes import environment
from tests.worker.real_processes.app import app
from tests.worker.real_processes.handler_log import VARIABLE, HandlerLog

PATIENCE_SECONDS = 120
MARK = "HOLDFAST_TEST_COMMAND"
ROOT = Path(__file__).parents[3]


async def eventually(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true result of the condition; fails after the timeout."""
    until = time.monotonic() + seconds
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < until, f"the condition was not true within {seconds} s"
        await asyncio.sleep(0.05)


class Command:
    """One `holdfast worker` and every process it started: they are recognized by a mark in their environment."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, log: Path) -> None:
        self._process, self._mark, self._log = process, mark.encode(), log
        self.pid = process.pid
        self.printed = 0
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout
        while piece := await self._process.stdout.read(2**20):
            self.printed += len(piece)

    # -- its processes ----------------------------------------------------------------------------------------

    def pids(self, program: str = "") -> set[int]:
        """Those that are alive: all of them, or those whose command line has this in it."""
        return {
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
            and self._mark in _contents(entry / "environ")
            and program.encode() in _contents(entry / "cmdline")
        }

    @property
    def workers(self) -> set[int]:
        return self.pids("--supervised")

    @property
    def heartbeat_processes(self) -> set[int]:
        return self.pids("holdfast.assembly.heartbeat_process")

    @property
    def children(self) -> set[int]:
        return self.pids("holdfast.worker.processes.child_main")

    def kin(self, pid: int) -> set[int]:
        """The children of one of its processes."""
        return {child for child in self.pids() if parent(child) == pid}

    # -- its output----------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    async def ready(self, processes: int = 1) -> None:
        """So many worker processes have begun, counted from the start."""
        await eventually(lambda: self.log.count("ready: ") >= processes or self._process.returncode is not None)
        assert self._process.returncode is None, self.log

    # -- its end ----------------------------------------------------------------------------------------------

    def signal(self, number: int, pids: Collection[int] | None = None) -> None:
        for pid in [self.pid] if pids is None else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code, once it has one."""
        return await asyncio.wait_for(self._process.wait(), seconds)

    async def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def close(self) -> None:
        """Kill whatever is left."""
        for _ in range(100):
            if not (left := self.pids()):
                break
            self.signal(signal.SIGKILL, left)
            await asyncio.sleep(0.05)
        await self.ended()
        await asyncio.wait_for(self._reading, PATIENCE_SECONDS)


class WorkerHarness:
    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder, self._settings = folder, settings
        self.commands: list[Command] = []
        self.handler_log = HandlerLog(folder / "handler-log")

    async def start(self, *arguments: str, ready: int = 1) -> Command:
        """`ready`: wait until so many of its processes are."""
        mark = secrets.token_hex(8)
        log = self._folder / f"log-{mark}"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.worker.real_processes.dying_command", "worker"),
                *("--app", "tests.worker.real_processes.app:app", *arguments),
                cwd=ROOT,
                env=environment(**self._environment(), **{MARK: mark, VARIABLE: str(self.handler_log.path)}),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        command = Command(process, mark, log)
        self.commands.append(command)
        await command.ready(ready)
        return command

    def _environment(self) -> dict[str, str]:
        """The same settings for the workers as for the test, which creates the jobs."""
        said, defaults = values_of(self._settings), values_of(Settings())
        return {f"HOLDFAST_{name.upper()}": str(value) for name, value in said.items() if value != defaults.get(name)}

    async def close(self) -> None:
        await asyncio.gather(*(command.close() for command in self.commands))
        for command in self.commands:
            print(f"--- the log of command {command.pid}:\n{command.log}")

    async def freeze(self, command: Command, pids: Collection[int]) -> None:
        """SIGSTOP, but not in the middle of a transaction."""
        for _ in range(100):
            command.signal(signal.SIGSTOP, pids)
            if await self.writable():
                return
            command.signal(signal.SIGCONT, pids)
            await asyncio.sleep(0.05)
        raise AssertionError(f"processes {pids} were in a transaction each time they were stopped")

    async def writable(self) -> bool:
        """False: a stopped process has an open transaction on SQLite, and no other process can write."""
        url = str(self._settings.database_url)
        return not url.startswith("sqlite") or await asyncio.to_thread(_writable, sqlite_path(url))

    # -- jobs and their outcomes-----------------------------------------------------------------------

    async def engine(self) -> Engine:
        return await app.engine()

    async def all_kept(self) -> bool:
        """Has every worker sent a heartbeat? With short leases, a test on a slow machine must wait for that."""
        return all(worker.last_heartbeat_at is not None for worker in await (await self.engine()).workers.all())

    async def started(self, job: JobHandle[Any], epoch: int = 1) -> int:
        """The process that runs this execution, as soon as one does."""
        note = await eventually(lambda: [n for n in self.handler_log.notes("started", job.id) if n["epoch"] == epoch])
        return int(note[0]["pid"])

    async def final(self, job: JobHandle[Any], seconds: float = PATIENCE_SECONDS) -> Job:
        async def look() -> Job | None:
            return found if (found := await job.get()).final else None

        return await self.truthful(await eventually(look, seconds))

    async def attempts(self, job: JobHandle[Any] | Job) -> list[Attempt]:
        return await (await self.engine()).reads.attempts(job.id)

    async def outcomes(self, job: JobHandle[Any] | Job) -> list[str]:
        return [attempt.outcome for attempt in await self.attempts(job)]

    async def claimed_at(self, job: JobHandle[Any] | Job, epoch: int) -> float:
        history = await (await self.engine()).reads.history(job.id)
        [claim] = [event for event in history if event.verb == "claim" and event.epoch == epoch]
        return claim.at.timestamp()

    async def truthful(self, job: Job) -> Job:
        """Check the invariants of every finished job."""
        history = await (await self.engine()).reads.history(job.id)
        attempts = await self.attempts(job)
        claims = [event.epoch for event in history if event.verb == "claim"]
        counted = [attempt for attempt in attempts if attempt.outcome != "released"]
        assert [event.seq for event in history] == list(range(1, job.version + 1)), "S12: no gap"
        assert claims == [attempt.epoch for attempt in attempts] == list(range(1, job.epoch + 1)), "S3, S7"
        assert job.attempt == len(counted) <= job.max_attempts, "S7: a release costs nothing, all else one attempt"
        assert [event.to_state in FINAL for event in history].index(True) == len(history) - 1, (
            "S6: no event after the final state"
        )
        if job.state is State.SUCCEEDED:
            returned = [note["epoch"] for note in self.handler_log.notes("returned", job.id)]
            assert job.epoch in returned, "S8: a job succeeds only if its handler returned"
            assert [attempt.outcome for attempt in attempts].count("succeeded") == 1
        return job


def _writable(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def _contents(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def parent(pid: int) -> int:
    fields = _contents(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0
