"""The heartbeat process, `python -m holdfast.assembly.heartbeat_process`: its worker starts it, arguments on stdin."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.ids import Ids
from holdfast.model.process_role import name_process
from holdfast.observe.logs import Logs, configure
from holdfast.settings import Settings
from holdfast.worker.heartbeat.heartbeater import DATABASE, HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.heartbeat.loop import HeartbeatLoop
from holdfast.worker.processes.parent_death import die_with_parent
from holdfast.worker.processes.signal_mask import STOPS, unblock_signals
from holdfast.worker.source import Source

CLOSE_SECONDS = 0.5

log = logging.getLogger("holdfast.heartbeat")


class HeartbeatSpec(msgspec.Struct, frozen=True):
    """The first line of the input."""

    lease_table: int  # the descriptor of its memory
    heartbeat_seconds: float
    watchdog_seconds: float
    settings: Settings
    idle_seconds: float = 0.0  # between heartbeats while the worker holds no job; 0: as always
    worker: str = ""
    server: str = ""  # its URL, instead of the database; the key in the settings identifies the worker
    instance: str = ""
    presence: str = ""  # the presence lock of the worker process, held on the connection that renews its leases
    logs: Logs | None = None  # the logging of the worker


class _NoPresence:
    """The heartbeat process claims nothing: it needs no instance name and waits for no hint."""

    instance = "heartbeat"
    exact = True

    @property
    def names(self) -> set[str]:
        return {self.instance}

    async def wait(self, seconds: float) -> bool:
        return False


def main() -> None:
    for stop in STOPS:  # they may be sent to the whole process group; this process ends with its worker
        signal.signal(stop, signal.SIG_IGN)
    unblock_signals()
    name_process("worker heartbeat")
    if DATABASE in sys.argv:  # while its worker registers
        for name in ("holdfast.assembly.engine", "holdfast.worker.sources.database"):
            import_module(name)
    try:
        asyncio.run(_main())
    except HoldfastError as error:
        log.error("heartbeat process failed: %s", error)
        sys.exit(1)


async def _main() -> None:
    commands = await _input()
    if not (line := await commands.readline()):
        return
    spec = msgspec.json.decode(line, type=HeartbeatSpec)
    if spec.logs is not None:
        configure(spec.logs)
    table = LeaseTable(spec.lease_table)
    die_with_parent(parent=table.header().worker)
    triggered = asyncio.Event()
    source = await _source(spec, triggered)
    heartbeats = HeartbeatLoop(
        source,
        table,
        heartbeat_seconds=spec.heartbeat_seconds,
        watchdog_seconds=spec.watchdog_seconds,
        idle_seconds=spec.idle_seconds,
        on_result=await _output(),
        triggered=triggered,
    )
    tasks = [asyncio.create_task(heartbeats.run()), asyncio.create_task(_read_commands(commands, triggered))]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    with suppress(Exception):
        await asyncio.wait_for(source.close(), CLOSE_SECONDS)
    os._exit(0)  # do not wait for a database that does not respond


async def _source(spec: HeartbeatSpec, triggered: asyncio.Event) -> Source:
    """Imports only what is needed: each worker process has one, so it should be small."""
    if spec.server:
        from holdfast.client.client import Client
        from holdfast.worker.sources.http import HttpSource

        client = Client(spec.server, spec.settings.worker_key, retries=0)  # a failed heartbeat is followed by another
        return HttpSource(client, Clock(), Ids(), instance=spec.instance)
    from holdfast.assembly.engine import open_engine
    from holdfast.worker.sources.database import DatabaseSource

    # It creates no jobs, and does not know the lifecycles of the app to which such settings may apply.
    engine = await open_engine(msgspec.structs.replace(spec.settings, lifecycles={}))
    if spec.presence:
        from holdfast.store.advisory_locks import worker_lock
        from holdfast.store.postgres import PostgresStore

        assert isinstance(engine.store, PostgresStore)  # noqa: S101
        # A heartbeat then opens the next connection at once.
        engine.store.hold(worker_lock(spec.presence), lost=triggered.set)
    return DatabaseSource(engine, _NoPresence(), Clock(), worker=spec.worker)


async def _read_commands(commands: asyncio.StreamReader, triggered: asyncio.Event) -> None:
    """Each line asks for a heartbeat; the end of the input ends the process."""
    while await commands.readline():
        triggered.set()


async def _input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _output() -> Callable[[HeartbeatResult], None]:
    """Results that the worker does not read in time are dropped: the next heartbeat repeats what still holds."""
    pipe: Any
    pipe, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, sys.stdout)

    def write(result: HeartbeatResult) -> None:
        if not pipe.get_write_buffer_size():
            pipe.write(msgspec.json.encode(result) + b"\n")

    return write


if __name__ == "__main__":
    main()
