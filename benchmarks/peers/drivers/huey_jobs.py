"""Huey on a SQLite file, which it leaves at synchronous=FULL."""

import common
from common import URL, ready
from huey import SqliteHuey

huey = SqliteHuey(filename=URL.removeprefix("sqlite:///") or ":memory:", results=False)


@huey.task(name="noop")
def noop(data: str) -> None:
    common.noop(data)


opened = ready(noop)
