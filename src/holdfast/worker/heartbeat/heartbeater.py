"""The worker's side of the heartbeat process, which renews the leases even while a handler blocks the worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.background import Loops
from holdfast.model.reports import Fleet, HeldLease
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.processes.signal_mask import signals_blocked

CLOSE_SECONDS = 2.0
LINE_BYTES_MAX = 1 << 20
HEARTBEAT_NOW = b"beat\n"
DATABASE = "--database"  # an argument of the heartbeat process: import the modules for a database before all else

log = logging.getLogger("holdfast.worker")


class HeartbeatResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one heartbeat found out: which leases are lost and which jobs are canceled; or why it failed."""

    sent: float = 0.0
    renewed: bool = False
    lost: list[HeldLease] = []
    cancel: list[HeldLease] = []
    enabled: bool = True
    fleet: Fleet = Fleet()
    failed: str = ""


class Heartbeater:
    """Starts the heartbeat process and restarts it. Use it in a thread that stays: on Linux the process ends with the
    thread that started it."""

    def __init__(self, table: LeaseTable, *, database: bool) -> None:
        self.table, self._database = table, database
        self._spec: dict[str, Any] = {}
        self._on_result: Callable[[HeartbeatResult], None] = lambda _: None
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(cls, table: LeaseTable, *, database: bool = True) -> Heartbeater:
        """Its modules take longer to import than a worker takes to register: spawn it first, `start` it later.
        `database`: it will renew leases in the database, not through a server."""
        heartbeater = cls(table, database=database)
        heartbeater._process = await heartbeater._spawn()
        return heartbeater

    def start(self, spec: dict[str, Any], on_result: Callable[[HeartbeatResult], None], loops: Loops) -> None:
        """`spec`: worker, heartbeat_seconds, watchdog_seconds, and the settings that name the database."""
        self._spec, self._on_result = {**spec, "lease_table": self.table.fd}, on_result
        if self._process is not None:
            self._send_spec(self._process)
        self._running = loops.start("heartbeat process", self._run)

    def trigger(self) -> None:
        """Send a heartbeat now."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(HEARTBEAT_NOW)

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._process is not None:
            await _end(self._process)

    async def _run(self) -> None:
        """Until the process ends; the restarted loop starts another. Until then no lease is renewed."""
        if self._process is None or self._process.returncode is not None:
            self._process = await self._spawn()
            self._send_spec(self._process)
        await self._listen(self._process)
        await _end(self._process)
        raise RuntimeError(f"the heartbeat process exited with {self._process.returncode}")

    async def _spawn(self) -> Process:
        """In its own session, so that a Ctrl-C for the worker does not reach it."""
        with signals_blocked():
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "holdfast.assembly.heartbeat_process"),
                *([DATABASE] if self._database else []),
                stdin=PIPE,
                stdout=PIPE,
                pass_fds=(self.table.fd,),
                start_new_session=True,
                limit=LINE_BYTES_MAX,
            )

    def _send_spec(self, process: Process) -> None:
        assert process.stdin is not None  # noqa: S101
        process.stdin.write(msgspec.json.encode(self._spec) + b"\n")

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101
        with contextlib.suppress(OSError):
            while line := await process.stdout.readline():
                try:
                    self._on_result(msgspec.json.decode(line, type=HeartbeatResult))
                except Exception:
                    log.exception("cannot handle the heartbeat result %.200r", line)


async def _end(process: Process) -> None:
    """The end of its input tells it to exit; it is killed if that takes too long."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), CLOSE_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
