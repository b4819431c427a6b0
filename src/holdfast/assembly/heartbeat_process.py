"""The heartbeat process, `python -m holdfast.assembly.heartbeat_process`: started by its worker, arguments on stdin."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.ids import Ids
from holdfast.model.process_role import name_process
from holdfast.observe.logs import Logs, configure
from holdfast.settings import Settings
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.heartbeat.loop import run_heartbeats
from holdfast.worker.processes.parent_death import die_with_parent
from holdfast.worker.processes.signal_mask import STOPS, unblock_signals
from holdfast.worker.source import Source

CLOSE_SECONDS = 0.5

log = logging.getLogger("holdfast.keeper")


class HeartbeatSpec(msgspec.Struct, frozen=True):
    """The first line of the input."""

    table: int  # the descriptor of its memory
    heartbeat_seconds: float
    watchdog_seconds: float
    settings: Settings
    idle_seconds: float = 0.0  # between beats while it holds nothing; 0 for the same as ever
    worker: str = ""
    server: str = ""  # instead of the database; then the key in the settings says which worker it is
    instance: str = ""
    presence: str = ""  # the name of the worker process whose lock we hold on the connection that renews its leases
    logs: Logs | None = None  # as the worker does


class _NoPresence:
    """A keeper claims nothing, so it needs no name and waits for no work."""

    instance = "keeper"
    exact = True

    @property
    def names(self) -> set[str]:
        return {self.instance}

    async def wait(self, seconds: float) -> bool:
        return False


def main() -> None:
    for stop in STOPS:  # may be meant for every process of a service; it ends with its worker
        signal.signal(stop, signal.SIG_IGN)
    unblock_signals()
    name_process("worker heartbeat")
    try:
        asyncio.run(_main())
    except HoldfastError as error:
        log.error("holdfast keeper: %s", error)
        sys.exit(1)


async def _main() -> None:
    said = await _input()
    if not (line := await said.readline()):
        return
    spec = msgspec.json.decode(line, type=HeartbeatSpec)
    if spec.logs is not None:
        configure(spec.logs)
    table = LeaseTable(spec.table)
    die_with_parent(parent=table.header().worker)
    poked = asyncio.Event()
    source = await _source(spec, poked)
    keeping = run_heartbeats(
        source,
        table,
        heartbeat_seconds=spec.heartbeat_seconds,
        watchdog_seconds=spec.watchdog_seconds,
        idle_seconds=spec.idle_seconds,
        tell=await _output(),
        poked=poked,
    )
    await _first([asyncio.create_task(keeping), asyncio.create_task(_hear_out(said, poked))])
    with suppress(Exception):
        await asyncio.wait_for(source.close(), CLOSE_SECONDS)
    os._exit(0)  # an answer of the database that never comes must not hold it up


async def _source(spec: HeartbeatSpec, poked: asyncio.Event) -> Source:
    """Loaded as needed: it is a process for each worker process, and should be small."""
    if spec.server:
        from holdfast.client.client import Client
        from holdfast.worker.sources.http import HttpSource

        client = Client(spec.server, spec.settings.worker_key, retries=0)  # a beat that fails is followed by another
        return HttpSource(client, Clock(), Ids(), instance=spec.instance)
    from holdfast.assembly.engine import open_engine
    from holdfast.worker.sources.database import DatabaseSource

    # It creates no jobs, and does not know the lifecycles of the app that such settings may be for.
    engine = await open_engine(msgspec.structs.replace(spec.settings, lifecycles={}))
    if spec.presence:
        from holdfast.store.postgres import PostgresStore
        from holdfast.store.presence import key_of

        assert isinstance(engine.store, PostgresStore)  # noqa: S101
        engine.store.hold(key_of(spec.presence), lost=poked.set)  # a beat then opens the next connection at once
    return DatabaseSource(engine, _NoPresence(), Clock(), worker=spec.worker)


async def _first(tasks: list[asyncio.Task[None]]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _hear_out(said: asyncio.StreamReader, poked: asyncio.Event) -> None:
    """Every further line asks for a beat; the end of the input is the end."""
    while await said.readline():
        poked.set()


async def _input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _output() -> Callable[[HeartbeatResult], None]:
    """News that would have to wait are dropped: the next beat says again what still holds."""
    pipe: Any
    pipe, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, sys.stdout)

    def tell(news: HeartbeatResult) -> None:
        if not pipe.get_write_buffer_size():
            pipe.write(msgspec.json.encode(news) + b"\n")

    return tell


if __name__ == "__main__":
    main()
