"""An app for the metrics: jobs that end in every way, and some that do not end yet."""

import asyncio
import os
import signal
import time
from pathlib import Path

from holdfast import App, Context, Permanent, Reject

app = App()


@app.job()
async def passes() -> None: ...


@app.job(max_attempts=3, backoff_base_seconds=0)
async def wavers(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise ConnectionError("not yet")


@app.job()
async def breaks() -> None:
    raise Permanent("E_BROKEN", "for good")


@app.job()
async def rejects() -> None:
    raise Reject("E_UNWANTED", "not here")


@app.job()
async def kills(ctx: Context) -> None:
    if ctx.fence == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.job()
async def waits(until: str) -> None:
    while not Path(until).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)


@app.job()
async def freezes(until: str) -> None:
    """Blocks its whole process until the file exists."""
    Path(f"{until}.begun").touch()  # noqa: ASYNC240
    for _ in range(3000):
        if Path(until).exists():  # noqa: ASYNC240
            return
        time.sleep(0.01)  # noqa: ASYNC251


@app.job()
async def is_never_asked_for() -> None: ...
