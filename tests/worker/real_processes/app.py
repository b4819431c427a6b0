"""An app whose jobs block, crash, stop or spin; a middleware records what each does in a file. See `handler_log.py`."""

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.sdk.app import App
from holdfast.worker.context import Context, SyncContext
from tests.worker.real_processes.handler_log import note

app = App()
LIBC = ctypes.PyDLL(None)  # its functions keep the GIL

# What happens to the process that runs the first execution of these, and when.
BEFORE_START = {"killed_before_start": signal.SIGKILL}
AFTER_RETURN = {"killed_after_return": signal.SIGKILL, "stopped_after_return": signal.SIGSTOP}


@app.middleware
async def write_down(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    send_signal(BEFORE_START, ctx)
    note("started", ctx)
    try:
        result = await call_next()
    except asyncio.CancelledError:
        note("interrupted", ctx, lost=ctx.lost)
        raise
    note("returned", ctx)
    send_signal(AFTER_RETURN, ctx)
    return result


def send_signal(signals: dict[str, signal.Signals], ctx: Context) -> None:
    if ctx.fence == 1 and ctx.job_type in signals:
        note("signalled", ctx)
        os.kill(os.getpid(), signals[ctx.job_type])


# -- long first executions --------------------------------------------------------------------------------------------


@app.job()
async def on_the_loop(ctx: Context, seconds: float = 0) -> int:
    await asyncio.sleep(seconds if ctx.fence == 1 else 0)
    return ctx.fence


@app.job()
def in_a_thread(ctx: SyncContext, seconds: float = 0) -> int:
    time.sleep(seconds if ctx.fence == 1 else 0)
    return ctx.fence


@app.job(isolation="process")
def in_a_process(ctx: SyncContext, seconds: int = 0) -> int:
    LIBC.sleep(seconds if ctx.fence == 1 else 0)
    return ctx.fence


@app.job()
def holding_the_gil(ctx: SyncContext, seconds: int = 0) -> int:
    LIBC.sleep(seconds if ctx.fence == 1 else 0)
    return ctx.fence


@app.job()
async def sleeps_on_the_loop(seconds: float) -> str:
    time.sleep(seconds)  # noqa: ASYNC251
    return "late"


@app.job()
async def blocks_in_a_task_of_its_own(seconds: float) -> None:
    await asyncio.create_task(sleeps_on_the_loop(seconds))


@app.job()
async def computes_with_the_gil() -> int:
    found = len(re.findall("(a+)+b", "a" * 25))  # the lock is held for all of it
    end = time.thread_time() + 0.5
    while time.thread_time() < end:  # and now other threads get their turn
        pass
    return found


@app.job()
def waits_for_a_file(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.02)
    return "late"


@app.job()
async def returns_when_interrupted(seconds: float) -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(seconds)
    return "late"


@app.job(isolation="process")
async def returns_when_interrupted_in_a_process(seconds: float) -> str:
    return await returns_when_interrupted(seconds)


@app.job(isolation="process")
async def cleans_up_in_a_process(ctx: Context) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.5)
        note("cleaned up", ctx)


@app.job()
async def until_told(ctx: Context) -> str:
    """Returns as soon as the worker announces that it stops."""
    while not ctx.stopping:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return "saved"


@app.job()
def until_canceled(ctx: SyncContext) -> None:
    while not ctx.cancel_requested:
        time.sleep(0.02)
    raise InterruptedError("left half done")


@app.job()
async def innocent(seconds: float = 0.2) -> str:
    await asyncio.sleep(seconds)
    return "done"


# -- first executions that ignore every stop --------------------------------------------------------------------------


@app.job()
def goes_on_in_a_thread(ctx: SyncContext) -> int:
    while ctx.fence == 1:
        note("going", ctx)
        time.sleep(0.05)
    return ctx.fence


@app.job()
async def goes_on_on_the_loop(ctx: Context) -> int:
    while ctx.fence == 1:
        note("going", ctx)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    return ctx.fence


# -- jobs that report progress ----------------------------------------------------------------------------------------

REPORTS = 40  # of each of these, a tenth of a second apart


@app.job(max_attempts=1)
async def reports_on_the_loop(ctx: Context) -> int:
    for number in range(REPORTS):
        await ctx.step(f"step-{number}", note, "stepped", ctx, number=number)
        await ctx.progress(100 * (number + 1) / REPORTS, counters={"done": number + 1}, checkpoint=number)
        await asyncio.sleep(0.1)
    return ctx.fence


def _reports(ctx: SyncContext) -> int:
    for number in range(REPORTS):
        ctx.step(f"step-{number}", note, "stepped", ctx, number=number)
        ctx.progress(100 * (number + 1) / REPORTS, counters={"done": number + 1}, checkpoint=number)
        time.sleep(0.1)
    return ctx.fence


@app.job()
async def reports_briefly(ctx: Context, times: int = 3) -> int:
    for number in range(times):
        await ctx.progress(step=f"step-{number}")
        await asyncio.sleep(0.02)
    return ctx.fence


@app.job(max_attempts=1)
def reports_in_a_thread(ctx: SyncContext) -> int:
    return _reports(ctx)


@app.job(max_attempts=1, isolation="process")
def reports_in_a_process(ctx: SyncContext) -> int:
    return _reports(ctx)


# -- jobs whose process is signalled ----------------------------------------------------------------------------------


@app.job()
async def killed_before_start(ctx: Context) -> int:
    return ctx.fence


@app.job()
async def killed_after_return(ctx: Context) -> int:
    return ctx.fence


@app.job()
async def stopped_after_return(ctx: Context) -> int:
    return ctx.fence


# -- poison ---------------------------------------------------------------------------------------------------


@app.job()
async def exits() -> None:
    os._exit(3)


@app.job()
def segfaults() -> None:
    ctypes.string_at(0)


@app.job(isolation="process")
def exits_in_a_process() -> None:
    os._exit(3)


@app.job(isolation="process")
def segfaults_in_a_process() -> None:
    ctypes.string_at(0)


@app.job(isolation="process", memory_mb=200)
def out_of_memory() -> int:
    return len(b"x" * 2**30)


@app.job(timeout=1)
async def spins_on_the_loop() -> None:
    while True:
        pass


@app.job(timeout=1)
def spins_in_a_thread() -> None:
    while True:
        time.sleep(0.001)  # or its neighbours would share one core with it


@app.job(timeout=1, isolation="process")
def spins_in_a_process() -> None:
    while True:
        pass


@app.job(timeout=1)
async def swallows_cancellation() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@app.job(timeout=1, isolation="process")
async def swallows_cancellation_in_a_process() -> None:
    await swallows_cancellation()


@app.job(isolation="process")
def prints(mebibytes: int) -> int:
    line = b"x" * (2**20 - 1) + b"\n"
    return sum(os.write(1, line) for _ in range(mebibytes))


@app.job()
async def returns_too_much() -> str:
    return "x" * 2**26


@app.job()
async def returns_no_json() -> Any:
    return object()
