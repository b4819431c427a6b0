"""Holdfast itself, through its own SDK and command line like the others."""

import subprocess

from common import async_noop, ready

from holdfast import App

app = App()


@app.job("noop")
async def noop(data: str) -> None:
    await async_noop(data)


def prepare() -> None:
    subprocess.run(["holdfast", "migrate"], check=True, stdout=subprocess.DEVNULL)


async def one(data: str) -> None:
    await noop.enqueue(data=data)


async def bulk(data: list[str]) -> None:
    await noop.enqueue_many([{"data": each} for each in data])


opened = ready(one, bulk)
