"""A process that holds leases as a worker does and runs the commands of a test: `Holder` starts it."""

import asyncio
import ctypes
import json
import sys
import time
from typing import Any

import msgspec

from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.model.reports import HeldLease
from holdfast.worker.heartbeat.heartbeater import Heartbeater, HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable

PATIENCE_SECONDS = 60
QUIET: Any = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.DEVNULL)


class Holder:
    """The test's end of the connection. `news` and `said` collect what the process reports."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.news: list[HeartbeatResult] = []
        self.said: dict[str, Any] = {}
        assert process.stderr
        self._hearing = asyncio.gather(self._hear(), process.stderr.read())

    @classmethod
    async def start(cls, leases: list[HeldLease], lease_seconds: float, **spec: Any) -> "Holder":
        told = json.dumps({"leases": msgspec.to_builtins(leases), "lease_seconds": lease_seconds, "spec": spec})
        program = (sys.executable, "-m", "tests.worker.lease_holder", told)
        pipe = asyncio.subprocess.PIPE
        holder = cls(await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe, stderr=pipe))
        await until(lambda: any(news.renewed for news in holder.news))
        return holder

    async def _hear(self) -> None:
        assert self.process.stdout
        while line := await self.process.stdout.readline():
            [(name, value)] = json.loads(line).items()
            if name == "news":
                self.news.append(msgspec.convert(value, HeartbeatResult))
            else:
                self.said[name] = value

    def tell(self, **command: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    async def ask(self, answer: str, **command: Any) -> Any:
        self.said.pop(answer, None)
        self.tell(**command)
        await until(lambda: answer in self.said)
        return self.said[answer]

    async def end(self) -> str:
        """What it and its heartbeat process logged."""
        if self.process.returncode is None:
            self.process.kill()
        _, complaints = await self._hearing
        await self.process.wait()
        return str(complaints, "utf-8")


async def until(condition: Any, seconds: float = PATIENCE_SECONDS) -> float:
    """Wait until the condition is true, and return how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "the condition did not become true"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


# -- the process itself ---------------------------------------------------------------------------------------


def say(**answer: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.flush()


async def hold(told: dict[str, Any]) -> None:
    table = LeaseTable.create()
    slots = [table.put(msgspec.convert(lease, HeldLease), told["lease_seconds"]) for lease in told["leases"]]
    heartbeater: Any = await Heartbeater.spawn(table)
    heartbeater.start(told["spec"], lambda news: say(news=news), Loops(Clock(), Ids()))
    ticking = asyncio.create_task(tick(table))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        match json.loads(line):
            case {"hold_the_gil": seconds}:
                ctypes.PyDLL(None).sleep(seconds)
                say(ages=[time.monotonic() - table.valid_since(slot) for slot in slots])
            case {"block_the_loop": seconds, "over_after": over}:
                table.deadline(slots[0], time.monotonic() + over)
                time.sleep(seconds)  # noqa: ASYNC251
            case {"stop_polling": _}:
                ticking.cancel()
                ticking = asyncio.create_task(tick(table, silent=True))
            case {"run_in_child": place}:
                child = await asyncio.create_subprocess_exec("sleep", "100", **QUIET)
                table.executor(slots[place], child.pid)
                say(child=child.pid)
            case {"trigger": _}:
                heartbeater.trigger()
            case {"heartbeater": _}:
                say(heartbeater=heartbeater._process.pid)
            case {"close": _}:
                await heartbeater.close()
                say(closed=heartbeater._process.returncode)


async def tick(table: LeaseTable, *, silent: bool = False) -> None:
    while True:
        table.tick()
        if not silent:
            table.polled()
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(hold(json.loads(sys.argv[1])))
