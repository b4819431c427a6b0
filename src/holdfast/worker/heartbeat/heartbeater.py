"""A worker's keeper: a small process that renews the worker's leases, so that no handler can starve them."""

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
POKE = b"beat\n"

log = logging.getLogger("holdfast.worker")


class HeartbeatResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """After each beat: when it was sent, and what the database said; or why it could not be asked."""

    sent: float = 0.0
    renewed: bool = False
    lost: list[HeldLease] = []
    cancel: list[HeldLease] = []
    enabled: bool = True
    fleet: Fleet = Fleet()
    failed: str = ""


class Heartbeater:
    """Started from a thread that stays: on Linux the process ends with the thread that started it."""

    def __init__(self, table: LeaseTable, spec: dict[str, Any], on_news: Callable[[HeartbeatResult], None]) -> None:
        self._table, self._spec = table, spec
        self._on_news = on_news
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, table: LeaseTable, spec: dict[str, Any], on_news: Callable[[HeartbeatResult], None], loops: Loops
    ) -> Heartbeater:
        """`spec`: worker, heartbeat_seconds, watchdog_seconds, and the settings that name the database."""
        keeper = cls(table, spec, on_news)
        keeper._process = await keeper._spawn()
        keeper._running = loops.start("heartbeat process", keeper._run)
        return keeper

    def poke(self) -> None:
        """Beat now."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(POKE)

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._process is not None:
            await _end(self._process)

    async def _run(self) -> None:
        """As long as the process does. Restarted, it starts another; until then the leases last as long as they do."""
        if self._process is None or self._process.returncode is not None:
            self._process = await self._spawn()
        await self._listen(self._process)
        await _end(self._process)
        raise RuntimeError(f"the process ended with {self._process.returncode}")

    async def _spawn(self) -> Process:
        """In a session of its own, so that a Ctrl-C for the worker does not reach it."""
        with signals_blocked():
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "holdfast.assembly.heartbeat_process"),
                stdin=PIPE,
                stdout=PIPE,
                pass_fds=(self._table.fd,),
                start_new_session=True,
                limit=LINE_BYTES_MAX,
            )
        assert process.stdin is not None  # noqa: S101
        process.stdin.write(msgspec.json.encode({**self._spec, "table": self._table.fd}) + b"\n")
        return process

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101
        with contextlib.suppress(OSError):
            while line := await process.stdout.readline():
                try:
                    self._on_news(msgspec.json.decode(line, type=HeartbeatResult))
                except Exception:
                    log.exception("cannot make use of the keeper's news %.200r", line)


async def _end(process: Process) -> None:
    """The end of its input tells it to close; it gets a moment for that."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), CLOSE_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
