"""Huey on a SQLite file at synchronous=FULL."""

import common
from common import URL, ready
from huey import SqliteHuey

huey = SqliteHuey(filename=URL.removeprefix("sqlite:///") or ":memory:", results=False, fsync=True)


@huey.task(name="noop")
def noop(data: str) -> None:
    common.noop(data)


opened = ready(noop)
