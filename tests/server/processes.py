"""Server processes that tests start, call and kill."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.server.steps import SECRET

START_SECONDS = 60
_READY = re.compile(r"ready: (http://[^\s,]+)")


@dataclass
class Process:
    url: str
    process: asyncio.subprocess.Process
    http: httpx2.AsyncClient
    log: list[str] = field(default_factory=list)

    async def ended(self) -> int:
        async with asyncio.timeout(START_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def server_process(
    url: str, *arguments: str, module: str = "holdfast.cli", **environment: str
) -> AsyncIterator[Process]:
    """`holdfast serve` on a free port; killed at the end if it still runs."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "serve", "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**surroundings, "HOLDFAST_DATABASE_URL": url, "HOLDFAST_ADMIN_SECRET": SECRET, **environment},
        cwd=Path(__file__).parents[2],
    )
    log: list[str] = []
    reading: asyncio.Task[None] | None = None
    try:
        address = await _address(process, log)
        reading = asyncio.create_task(_read_on(process, log))
        async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
            yield Process(address, process, http, log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        if reading is not None:
            await reading


async def _address(process: asyncio.subprocess.Process, log: list[str]) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        while line := (await process.stdout.readline()).decode():
            log.append(line)
            if found := _READY.search(line):
                return found[1]
    raise AssertionError(f"the server did not start:\n{''.join(log)}")


async def _read_on(process: asyncio.subprocess.Process, log: list[str]) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        log.append(line.decode(errors="replace"))
