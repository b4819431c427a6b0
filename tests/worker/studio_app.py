"""An app whose jobs make jobs of other lifecycles."""

import asyncio

from holdfast import App
from holdfast.lifecycle import DEFAULT, Machine

app = App(lifecycles=[Machine("night-shift", words=DEFAULT.words, moves=map(str, DEFAULT.moves))])


@app.job(lifecycle="transcode")
async def film() -> None:
    await asyncio.Event().wait()


@app.job(lifecycle="images")
async def still() -> None:
    await asyncio.Event().wait()


@app.job(lifecycle="transcode", lease_seconds=700, max_attempts=6)
async def trailer() -> None:
    await asyncio.Event().wait()


@app.job(lifecycle="night-shift")
async def cleaning() -> None:
    await asyncio.Event().wait()


@app.job()
async def order() -> None:
    await film.enqueue()
    await still.enqueue()
    await cleaning.enqueue()
    await trailer.enqueue()
    await trailer.options(max_attempts=2).enqueue()
