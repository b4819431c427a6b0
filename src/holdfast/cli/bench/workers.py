"""Starts worker processes for the benchmark, as `holdfast worker` does, and stops them at its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

from holdfast.cli.bench.app import NAME
from holdfast.errors import HoldfastError
from holdfast.worker.processes.supervisor_protocol import READY, STOP

STOP_SECONDS = 30.0
PROGRAM = [sys.executable, "-m", "holdfast.cli", "worker", "--app", "holdfast.cli.bench.app:app", "--name", NAME]


@asynccontextmanager
async def workers_running(arguments: list[str], processes: int) -> AsyncIterator[list[Process]]:
    """So many worker processes, ready to claim."""
    with tempfile.TemporaryFile("w+") as log:
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(_one(arguments, log)) for _ in range(processes)]


@asynccontextmanager
async def _one(arguments: list[str], log: IO[str]) -> AsyncIterator[Process]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        command = [*PROGRAM, *arguments, "--supervised"]
        process = await asyncio.create_subprocess_exec(*command, stdin=theirs.fileno(), stdout=log, stderr=log)
        theirs.close()
        try:
            if await asyncio.get_running_loop().sock_recv(ours, len(READY)) != READY:
                raise HoldfastError(f"a worker did not start: {_last_line(log)}")
            yield process
        finally:
            await _stop(process, ours)


async def _stop(process: Process, line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.send(STOP)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        await process.wait()


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    return next((line.strip() for line in reversed(log.readlines()) if line.strip()), "no output")
