"""The toy's ledger over jobs that hang and fail, for stories that kill processes."""

import asyncio

from holdfast import App, Context
from holdfast.extend import Extension
from tests.extension import toy

ENDS = ("complete", "fail", "reject", "cancel", "reap")
ext = Extension("notes", package="tests.extension.toy")


@ext.job("NOTE_WORK", queue="notes", max_attempts=2)
async def work(ctx: Context, do: str = "end") -> str:
    if do == "hang" and ctx.attempt == 1:
        await asyncio.sleep(3600)
    if do == "fail":
        raise ValueError("it cannot be done")
    return do


ext.effect("create", *ENDS)(toy.keep_books)
app = App(name="accounts")
app.include(ext)
