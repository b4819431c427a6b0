"""An app that has no extension, beside one that has."""

import asyncio

from holdfast import App, Context

app = App(name="other")


@app.job("PLAIN_WORK", max_attempts=2)
async def work(ctx: Context) -> None:
    if ctx.attempt == 1:
        await asyncio.sleep(3600)
