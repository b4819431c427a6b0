"""A process with a presence: it prints its instance name and its child's pid, and runs until its input ends.

    python -m tests.store.alive sqlite:////tmp/jobs.db [fork | exec | claim]
    python -m tests.store.alive sqlite:////tmp/jobs.db is-dead NAME

With a child that outlives it, by fork or by exec; or holding a job.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.engine import Engine
from holdfast.store import open_store
from holdfast.store.presence import open_presence

CHILD_SECONDS = 60


@dataclass
class Living:
    process: asyncio.subprocess.Process
    instance: str
    child: int

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        await self.process.wait()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def living(url: str, how: str = "") -> AsyncIterator[Living]:
    """Another process on this database."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.alive", url, how),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    instance, child = (await process.stdout.readline()).decode().split()
    try:
        yield Living(process, instance, int(child))
    finally:
        if int(child):
            os.kill(int(child), signal.SIGKILL)
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def seen_dead_from_outside(url: str, name: str) -> bool:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.alive", url, "is-dead", name), stdout=asyncio.subprocess.PIPE
    )
    return (await process.communicate())[0] == b"True\n"


async def _live(url: str, how: str) -> None:
    presence = await open_presence(url)
    child = _child(how)
    if how == "claim":
        engine = Engine(await open_store(url))
        worker = (await engine.workers.register(name="to be killed")).id
        [_lease] = await engine.claim(worker, instance=presence.instance)
    print(presence.instance, child, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await presence.close()


def _child(how: str) -> int:
    if how == "exec":
        return subprocess.Popen(["sleep", str(CHILD_SECONDS)], close_fds=False, stdout=subprocess.DEVNULL).pid
    if how == "fork" and (child := os.fork()):
        return child
    if how == "fork":
        os.close(sys.stdout.fileno())  # otherwise its reader would wait for us
        time.sleep(CHILD_SECONDS)
        os._exit(0)
    return 0


async def _is_dead(url: str, name: str) -> bool:
    presence = await open_presence(url)
    try:
        return name in await presence.dead([name])
    finally:
        await presence.close()


if __name__ == "__main__":
    _, url, how, *names = sys.argv
    if how == "is-dead":
        print(asyncio.run(_is_dead(url, names[0])))
    else:
        asyncio.run(_live(url, how))
