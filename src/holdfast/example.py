"""The bundled example, `holdfast.example:app`: one job for each thing worth seeing. `holdfast dev` runs it."""

from __future__ import annotations

import os
import signal
from typing import Any

from holdfast import App, Context, JobHandle, SyncContext

app = App()


@app.job()
async def hello(name: str = "world") -> str:
    """Success: what it returns is the job's result."""
    return f"Hello, {name}!"


@app.job(backoff_base_seconds=0.5)
async def flaky(ctx: Context, failures: int = 2) -> str:
    """Retry: an exception is a failure, and the next attempt comes after a backoff."""
    if ctx.attempt <= failures:
        raise ConnectionError(f"connection refused (attempt {ctx.attempt})")
    return f"connected at attempt {ctx.attempt}"


@app.job()
async def film(ctx: Context, name: str = "a.mov", seconds: float = 2) -> str:
    """A long job with parts: each has its own progress, and a finished one is not done again by a retry."""
    async for part in ctx.parts(["1080p", "720p", "480p", "thumbnail"]):
        for percent in range(0, 100, 10):
            await part.progress(percent)
            await app.clock.sleep(seconds / 10)
    return f"{name} in three sizes, with a thumbnail"


@app.job(isolation="process", cpu_seconds=60, memory_mb=512)
def primes(below: int = 300_000) -> int:
    """CPU-bound work: in its own process it blocks no other job, and can be limited and killed."""
    sieve = bytearray([1]) * below
    for number in range(2, below):
        if sieve[number]:
            for multiple in range(number * number, below, number):
                sieve[multiple] = 0
    return sum(sieve[2:])


@app.job(isolation="process", max_attempts=3, backoff_base_seconds=0.5)
def poison() -> None:
    """It crashes the process that runs it. The worker survives, and the job is dead after its last attempt."""
    os._exit(13)


@app.job()
async def endless(ctx: Context) -> None:
    """It runs until it is canceled, which interrupts it while it waits, or until its worker stops."""
    rounds = 0
    while not ctx.stopping:
        rounds += 1
        await ctx.progress(step=f"round {rounds}")
        await app.clock.sleep(0.5)
    raise ctx.snooze(0)


@app.job()
async def cancel(job: str) -> str:
    """Cancels another job."""
    at_once = await app.job_handle(job).cancel("no longer needed")
    return "canceled" if at_once else "asked to stop"


@app.job(isolation="process", backoff_base_seconds=0.5)
def count(ctx: SyncContext, to: int = 20, crash_at: int = 0) -> dict[str, int]:
    """It saves checkpoints. After a crash (its own, once; or your `kill -9`) it resumes from the last one."""
    begun_at = ctx.checkpoint or 0
    for number in range(begun_at + 1, to + 1):
        app.clock.block(0.2)
        ctx.progress(100 * number / to, f"counted to {number}", checkpoint=number)
        if number == crash_at and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"counted to": to, "resumed after": begun_at}


async def first_jobs() -> list[JobHandle[Any]]:
    """Enqueue one of each. The idempotency keys make a second start find the same jobs."""
    jobs: list[JobHandle[Any]] = [
        await hello.options(idempotency_key="first-hello").enqueue(),
        await flaky.options(idempotency_key="first-flaky").enqueue(),
        await primes.options(idempotency_key="first-primes").enqueue(),
        await poison.options(idempotency_key="first-poison").enqueue(),
        await film.options(idempotency_key="first-film").enqueue(),
        await count.options(idempotency_key="first-count").enqueue(crash_at=10),
        await endless.options(idempotency_key="first-endless").enqueue(),
    ]
    jobs.append(await cancel.options(idempotency_key="first-cancel", delay=5).enqueue(jobs[-1].id))
    return jobs
