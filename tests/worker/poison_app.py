"""An app whose jobs crash, block, exceed their limits or return invalid values, and a few that work."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.sdk.app import App
from holdfast.worker.context import Context, SyncContext
from holdfast.worker.outcomes import Permanent

HOARD: list[bytes] = []


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[dict[str, Any]]:
    yield {"pid": os.getpid()}
    note_leaving()


def note_leaving() -> None:
    if file := os.environ.get("HOLDFAST_TEST_LEFT_FILE"):
        Path(file).write_text("left")


app = App(lifespan=lifespan)


@app.job(isolation="process")
async def add(ctx: Context, a: int, b: int) -> dict[str, int]:
    await ctx.progress(50, "adding", counters={"terms": 2})
    return {"sum": a + b, "pid": os.getpid(), "state": ctx.state["pid"]}


@app.job(isolation="process")
def add_sync(ctx: SyncContext, a: int, b: int) -> dict[str, int]:
    ctx.progress(50, "adding", counters={"terms": 2})
    return {"sum": a + b, "pid": os.getpid(), "state": ctx.state["pid"]}


@app.job(isolation="process")
def withdraws(ctx: SyncContext, job: str) -> str:
    return ctx.withdraw(job, "unwanted").state


@app.job(isolation="process")
async def in_parts(ctx: Context) -> dict[str, Any]:
    did = []
    async for part in ctx.parts(["low", "high"]):
        await part.progress(40)
        did.append(part.name)
    token = await ctx.step("token", lambda: "made here")
    await ctx.save({"reached": 2})
    return {"did": did, "token": token, "checkpoint": ctx.checkpoint}


@app.job(isolation="process")
def in_parts_sync(ctx: SyncContext) -> dict[str, Any]:
    did = []
    for part in ctx.parts(["low", "high"]):
        part.progress(40)
        did.append(part.name)
    token = ctx.step("token", lambda: "made here")
    ctx.save({"reached": 2})
    return {"did": did, "token": token, "checkpoint": ctx.checkpoint}


@app.job(isolation="process")
def exit_hard(code: int) -> None:
    os._exit(code)


@app.job(isolation="process")
def segfault() -> None:
    ctypes.string_at(0)


@app.job(isolation="process")
def exit_softly() -> None:
    sys.exit(3)


@app.job(isolation="process", memory_mb=200)
def allocate(megabytes: int) -> int:
    return len(bytearray(megabytes * 2**20))


@app.job(isolation="process", cpu_seconds=1)
def burn() -> None:
    while True:
        pass


@app.job(isolation="process")
def loop_for_ever(ctx: SyncContext) -> None:
    ctx.progress(1)
    while True:
        pass


@app.job(isolation="process")
def hold_the_gil() -> None:
    ctypes.PyDLL(None).sleep(600)


@app.job(isolation="process")
async def wait_for_cancel(ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(600)
    return "not reached"


@app.job(isolation="process")
async def swallow_cancel(ctx: Context) -> dict[str, bool]:
    try:
        await ctx.progress(1)
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return {"canceled": ctx.cancel_requested, "lost": ctx.lost}


@app.job(isolation="process")
def look_at_the_flags(ctx: SyncContext) -> dict[str, bool]:
    ctx.progress(1)
    while not (ctx.cancel_requested or ctx.stopping or ctx.lost):
        time.sleep(0.01)
    return {"canceled": ctx.cancel_requested, "stopping": ctx.stopping, "lost": ctx.lost}


@app.job(isolation="process")
async def cancel_myself() -> None:
    raise asyncio.CancelledError


@app.job(isolation="process")
def no_json() -> Any:
    return object()


@app.job(isolation="process")
def not_a_number() -> float:
    return float("nan")


@app.job(isolation="process")
def huge_result(bytes_: int) -> str:
    return "x" * bytes_


@app.job(isolation="process")
def complain(length: int) -> None:
    raise Permanent("E_NAME", "no such file: \udc80" + "x" * length, context={"name": "\udc80", "length": length})


@app.job(isolation="process")
def odd_error(what: str) -> None:
    code: Any = 404 if what == "number" else object()
    raise Permanent(code, "a code that is no text")


@app.job(isolation="process")
async def report_nonsense(ctx: Context, what: str) -> None:
    match what:
        case "nan":
            await ctx.counters(rate=float("nan"))
        case "object":
            await ctx.save(object())
        case "huge":
            await ctx.save("x" * 2**20)
        case "step":
            await ctx.progress(step=5)  # type: ignore[arg-type]


@app.job(isolation="process")
def print_much(mebibytes: int) -> int:
    line = b"x" * (2**20 - 1) + b"\n"
    return sum(os.write(1, line) for _ in range(mebibytes))


@app.job(isolation="process")
def hoard(megabytes: int) -> int:
    HOARD.append(b"x" * (megabytes * 2**20))
    return os.getpid()


@app.job(isolation="process")
def open_files() -> dict[str, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink():  # the listing itself has one, gone by now
            found[entry.name] = os.readlink(entry)
    return found


@app.job(isolation="process")
def leave_a_process_behind(how: str) -> int:
    if how == "forked":  # it inherits the line to the worker
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
    else:
        pid = subprocess.Popen(["sleep", "600"]).pid
    Path(os.environ["HOLDFAST_TEST_PID_FILE"]).write_text(str(pid))
    os.kill(os.getpid(), signal.SIGKILL)
    return pid


@app.job(isolation="process")
def signal_myself(ctx: SyncContext) -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    ctx.progress(50)
    return "still here"


if __name__ == "__main__":
    raise SystemExit("a child process must not run this")
