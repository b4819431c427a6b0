"""`python -m benchmarks.upload`: what a large upload through a route of an extension costs the server in memory.

The route reads the body piece by piece and keeps nothing, in a server process of its own. Exit status 1: it grew by
16 MiB or more.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route
from holdfast.server.http.route import Reply
from holdfast.settings import Settings

MIB = 1 << 20
GROWN_MAX = 16 * MIB
PIECE = bytes(range(256)) * 1024  # 256 KiB


class Measured(NamedTuple):
    seconds: float
    grown: int  # bytes by which the largest resident size of the server rose


async def take(request: Request) -> Reply:
    digest, size = hashlib.sha256(), 0
    async for chunk in request.stream():
        digest.update(chunk)
        size += len(chunk)
    return Reply(200, {"size": size, "sha256": digest.hexdigest()})


async def serve(url: str) -> None:
    from holdfast.assembly.engine import AppParts
    from holdfast.assembly.server import open_server
    from holdfast.server.http.server import served

    words: dict[str, Any] = {"body": "application/octet-stream", "answers": {200: "application/json"}}
    route = extension_route("bench", "POST", "/bench/upload", take, scope=None, body_max=2**40, **words)
    settings = Settings(database_url=url)
    async with open_server(settings, AppParts(), allow_local=True) as server:
        server.extension_routes = [route]
        async with served(server, host="127.0.0.1", port=0) as address:
            print(address, flush=True)
            await asyncio.Event().wait()


def peak(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


async def pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // len(PIECE)):
        yield PIECE


async def measure(size: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.upload", "--serve", f"sqlite:///{folder}/jobs.db"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert server.stdout is not None
        try:
            address = (await server.stdout.readline()).decode().strip()
            async with httpx2.AsyncClient(base_url=address, timeout=600) as http:
                await _send(http, 4 * MIB)
                before, began = peak(server.pid), time.perf_counter()
                await _send(http, size)
                return Measured(time.perf_counter() - began, peak(server.pid) - before)
        finally:
            server.terminate()
            await server.wait()


async def _send(http: httpx2.AsyncClient, size: int) -> None:
    headers = {"content-type": "application/octet-stream", "content-length": str(size)}
    answer = await http.post("/bench/upload", content=pieces(size), headers=headers)
    assert (answer.status_code, answer.json()["size"]) == (200, size), answer.text


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--serve", metavar="URL")
    options = parser.parse_args()
    if options.serve:
        await serve(options.serve)
        return
    seconds, grown = await measure(options.mib * MIB)
    rate = options.mib / seconds
    print(f"{options.mib} MiB in {seconds:.1f} s ({rate:.0f} MiB/s); the server grew by {grown / MIB:.1f} MiB")
    sys.exit(grown >= GROWN_MAX)


if __name__ == "__main__":
    asyncio.run(main())
