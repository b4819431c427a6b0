"""Jobs that end in every way, and say things that a log must not."""

import asyncio
import logging
import os

from holdfast import App, Context, Permanent, Reject, Snooze

app = App()
own = logging.getLogger("the app's own")


@app.job()
async def fine(ctx: Context) -> dict[str, str]:
    ctx.log.info("half way", extra={"password": "canary-of-a-field", "time": "mine", "size": 5})
    own.info("from a library, %s", "too")
    return {"result": "canary-of-a-result"}


@app.job(backoff_base_seconds=0.01, max_attempts=3)
async def flaky(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise ValueError('line one\n{"level":"critical","message":"forged"}\x1b[2J')


@app.job(backoff_base_seconds=0.01, max_attempts=2)
async def doomed() -> None:
    raise ConnectionError(f"cannot reach {app.settings.url}, Authorization: Bearer canary-of-a-header")


@app.job()
async def hopeless() -> None:
    raise Permanent("E_HOPELESS", "x" * 500)


@app.job()
async def refused() -> None:
    raise Reject("E_NO", "not this one")


@app.job()
async def sleepy(ctx: Context) -> Snooze | None:
    """Once."""
    return Snooze(0.01) if ctx.fence == 1 else None


@app.job()
async def long(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.job()
async def deadly() -> None:
    """Of the process, the first time."""
    try:
        os.close(os.open("died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), 9)


@app.job(isolation="process")
def apart(ctx: Context, payload: str) -> None:
    ctx.log.warning("from a child: %s", os.getpid())
