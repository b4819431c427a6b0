"""DBOS: a workflow of one function, enqueued by its client, on PostgreSQL or SQLite."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common import URL, Calls, noop
from dbos import DBOS, DBOSClient

QUEUE = "bench"


@DBOS.workflow(name="noop")
def workflow(data: str) -> None:
    noop(data)


def launch() -> None:
    DBOS(config={"name": "bench", "system_database_url": URL, "log_level": "WARNING", "application_version": "1"})
    DBOS.launch()
    DBOS.register_queue(QUEUE)


def prepare() -> None:
    launch()
    DBOS.destroy()


def work() -> None:
    launch()
    threading.Event().wait()


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    client = DBOSClient(system_database_url=URL)

    def one(data: str) -> None:
        client.enqueue({"workflow_name": "noop", "queue_name": QUEUE}, data)

    yield Calls(one)
    client.destroy()
