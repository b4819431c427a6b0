"""One worker process: opens the database or a server, starts heartbeats and background loops, and runs the worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.assembly.engine import extension_maintenance, retention, start_extensions
from holdfast.assembly.startup_log import log_startup_warnings
from holdfast.background import Loop, Loops
from holdfast.client.client import Client
from holdfast.dispatch.dispatch import Dispatch, kind_of_worker
from holdfast.dispatch.listener import Listener
from holdfast.engine.declare import APP, refuse_severe
from holdfast.errors import HoldfastError, Invalid
from holdfast.maintenance.crash_detector import CrashDetector
from holdfast.maintenance.maintainer import Maintainer
from holdfast.maintenance.rotation import Rotation
from holdfast.model import Liveness
from holdfast.model.names import capabilities_of
from holdfast.model.reports import Fleet
from holdfast.observe.logs import inherited, job_lines
from holdfast.observe.tracing import exported
from holdfast.outage_log import outage
from holdfast.sdk.app import App
from holdfast.store.notify import queue_waker
from holdfast.store.presence import Presence, open_presence
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executor import HandlerResources
from holdfast.worker.handler import Handler
from holdfast.worker.heartbeat.heartbeater import Heartbeater, HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.loop_watch import watched
from holdfast.worker.processes.process_pool import ProcessPool
from holdfast.worker.runtime import Worker
from holdfast.worker.source import Source
from holdfast.worker.sources.database import DatabaseSource, NoBroker
from holdfast.worker.sources.http import HttpSource

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.worker.metrics import WorkerCounters

log = logging.getLogger(__name__)

GOODBYE_SECONDS = 3.0  # for the last heartbeat, which says that this worker is offline
RELEASE_DELAY_SECONDS, EXIT_SECONDS = 1.0, 0.8  # unfinished jobs can be claimed again after the process has exited
IDLE_SHARE = 1 / 3  # of the time after which a silent worker counts as offline: the heartbeat interval when idle
HTTP_HEARTBEAT_SECONDS_MAX = 3.0  # a worker over HTTP learns of cancels from its heartbeats alone


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What the command line says about a worker; None leaves it to the settings."""

    queues: list[str] | None = None
    concurrency: int | None = None
    name: str | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None  # of the app, for child processes
    replaceable: bool = False  # a supervisor starts another process when this one ends
    server: str | None = None  # its URL; None: the worker uses the database itself
    metrics: WorkerCounters | None = None  # to be updated, where they are exported
    leave: Callable[[], Awaitable[None]] | None = None  # exits the process, where it is ours to exit
    heartbeater: Heartbeater | None = None  # spawned ahead


@dataclass
class WorkerBackend:
    """Where a worker process claims from, and what runs beside it: for the database itself, or a server over HTTP."""

    source: Source
    heartbeat: dict[str, Any]  # for the heartbeat process: see `HeartbeatSpec`
    loops: dict[str, Loop] = field(default_factory=dict)
    on_fleet: Callable[[Fleet], None] = lambda _: None  # how many processes are alive, after each heartbeat


async def work(app: App, options: WorkerOptions, *, stop: asyncio.Event, on_ready: Callable[[Worker], None]) -> Worker:
    """Work until `stop` is set and every job is finished or released. Threads of the worker may still be running."""
    slots, loops = options.concurrency or app.settings.concurrency, Loops(app.clock, app.ids)
    async with contextlib.AsyncExitStack() as stack:
        heartbeater = options.heartbeater or await spawn_heartbeater(options.server)
        stack.push_async_callback(heartbeater.close)
        await start_extensions(app.extensions.values())
        opening = (
            _server_backend(app, options, slots) if options.server else _database_backend(app, options, slots, loops)
        )
        backend = await stack.enter_async_context(opening)
        inner = await stack.enter_async_context(contextlib.AsyncExitStack())  # closed before jobs are released
        worker = await _open_worker(app, options, backend, heartbeater.table, inner)
        if options.metrics is not None:
            options.metrics.of(worker, loops)
        _start_heartbeats(heartbeater, app, worker, backend, loops)
        inner.enter_context(watched(lambda: worker.slots.lease_table.header().tick, worker.slots.running))
        stopping = asyncio.create_task(_stop_when_set(stop, worker))
        try:
            async with loops.running(backend.loops):
                on_ready(worker)
                await worker.run()
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            await _say_goodbye(backend.source, slots)
        await inner.aclose()
        if worker.executor.unfinished and options.leave is not None:
            await _release_and_exit(worker, options.leave)
        return worker


async def _open_worker(
    app: App, options: WorkerOptions, backend: WorkerBackend, table: LeaseTable, stack: contextlib.AsyncExitStack
) -> Worker:
    settings, slots = app.settings, options.concurrency or app.settings.concurrency
    traced = exported("holdfast-worker", wanted=settings.traces, per_second=settings.traces_per_second)
    return Worker(
        backend.source,
        _remote_handlers(app) if options.server else app.handlers,
        config=WorkerConfig(
            concurrency=slots,
            queues=options.queues,
            stop_grace_seconds=settings.stop_grace_seconds,
            timeout_grace_seconds=settings.timeout_grace_seconds,
            replaceable=options.replaceable,
        ),
        resources=HandlerResources(
            middleware=app.middleware_stack,
            state=await stack.enter_async_context(app.lifespan_state()),
            pool=_process_pool(app, options, slots),
            database=None if options.server else app.handler_database,
            metrics=options.metrics,
            traces=await stack.enter_async_context(traced),
        ),
        lease_table=table,
        clock=app.clock,
        ids=app.ids,
        attempt_log=AttemptLog(job_lines(), app.lifecycles),
    )


async def spawn_heartbeater(server: str | None) -> Heartbeater:
    """Before the database is opened: then its heartbeat process is ready when the worker is."""
    return await Heartbeater.spawn(LeaseTable.create(), database=server is None)


def _start_heartbeats(heartbeater: Heartbeater, app: App, worker: Worker, backend: WorkerBackend, loops: Loops) -> None:
    def on_result(result: HeartbeatResult) -> None:
        worker.on_heartbeat(result)
        backend.on_fleet(result.fleet)

    settings = app.settings
    spec = {
        "watchdog_seconds": settings.watchdog_seconds,
        "settings": settings,
        "logs": inherited(),
        **backend.heartbeat,
    }
    heartbeater.start(spec, on_result, loops)


@contextlib.asynccontextmanager
async def _database_backend(app: App, options: WorkerOptions, slots: int, loops: Loops) -> AsyncIterator[WorkerBackend]:
    """Registers the worker; other processes detect its crash by its presence lock. It takes part in maintenance."""
    settings, clock, ids = app.settings, app.clock, app.ids
    engine = await app.engine()
    refuse_severe(engine.job_types.contradictions)
    rotation = Rotation(clock, ids)
    idle_seconds = max(settings.heartbeat_seconds, settings.worker_offline_seconds * IDLE_SHARE)
    presence = await open_presence(settings.url, clock, ids, queues=options.queues, loops=loops)
    waker = queue_waker(presence.wake)
    engine.ctx.wakers.append(waker)
    try:
        await presence.share(engine.results.signals)
        registered = await engine.workers.register(
            name=options.name,
            capabilities=options.capabilities,
            metadata={
                "host": platform.node(),
                "pid": os.getpid(),
                "jobTypes": sorted(app.handlers),
                "queues": options.queues,
                APP: app.name,
            },
            slots=slots,
            heartbeat_seconds=idle_seconds,
            offline_seconds=settings.worker_offline_seconds,
        )
        kept = retention(settings)
        await log_startup_warnings(engine, kept)
        if options.metrics is not None:
            measure(engine, options.metrics, await app.dispatch())

        def on_fleet(fleet: Fleet) -> None:
            rotation.update(fleet)
            presence.set_live_processes(fleet.live)

        async with _hints(app, options, presence, lambda: rotation.fleet.live) as hints:
            background: dict[str, Loop] = {
                "maintenance": Maintainer(
                    engine, clock, ids, every=settings.sweep_seconds, retention=kept, rotation=rotation
                ).run,
                "crash detector": CrashDetector(engine, presence, clock, ids, rotation).run,
                "broker listener": hints.run,
            }
            if extensions := app.extensions.values():
                background["extension maintenance"] = extension_maintenance(engine, clock, ids, extensions).run
            yield WorkerBackend(
                DatabaseSource(engine, presence, clock, worker=registered.id, hints=hints),
                {
                    "worker": registered.id,
                    "heartbeat_seconds": settings.heartbeat_seconds,
                    "idle_seconds": idle_seconds,
                    "presence": presence.lock,
                },
                background,
                on_fleet,
            )
    finally:
        engine.ctx.wakers.remove(waker)
        await presence.close()


def measure(engine: Engine, metrics: WorkerCounters, dispatch: Dispatch | None = None) -> None:
    """Adds the metrics of the database and of the broker to those of a worker."""
    from holdfast.observe.attempt_metrics import AttemptMetrics
    from holdfast.observe.query_metrics import QueryTimes

    async def waiting() -> dict[str, int]:
        return {name: depth.waiting for name, depth in (await engine.reads.queue_stats()).types.items()}

    registry = metrics.registry
    engine.store.on_query = QueryTimes(registry, registry.queries, registry.query_errors, lambda query: (query.name,))
    engine.ctx.timing = AttemptMetrics(registry.attempt_seconds, lost_only=True)
    metrics.show_depths(waiting)
    registry.before.append(lambda: registry.show_engine(engine.ctx.reaped, engine.ctx.hook_failures))
    if dispatch is not None:
        registry.before.append(
            lambda: registry.show_broker(dispatch.tally, up=dispatch.up, breaker_open=not dispatch.breaker.closed)
        )


@contextlib.asynccontextmanager
async def _hints(
    app: App, options: WorkerOptions, presence: Presence, live: Callable[[], int]
) -> AsyncIterator[Listener | NoBroker]:
    """From the broker, where there is one; else from the database."""
    dispatch, poll_seconds = await app.dispatch(), app.settings.poll_seconds
    if dispatch is None:
        yield NoBroker(poll_seconds)
        return
    kind = kind_of_worker(options.queues, app.handlers, capabilities_of(options.capabilities))
    listener = dispatch.listen(
        kind, presence.wake, queues=options.queues, types=app.handlers, poll_seconds=poll_seconds, live=live
    )
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def _server_backend(app: App, options: WorkerOptions, slots: int) -> AsyncIterator[WorkerBackend]:
    """Its key identifies the worker. Crash detection and maintenance are up to the server."""
    _check_remote_types(app)
    settings, clock, ids = app.settings, app.clock, app.ids
    client = Client(options.server or "", settings.worker_key, clock=clock, ids=ids)
    source = HttpSource(client, clock, ids)
    database, outage.of = outage.of, "the server"
    try:
        await source.heartbeat([], liveness=Liveness.IDLE, slots=slots)  # fails at once if the key is rejected
        yield WorkerBackend(
            source,
            {
                "server": options.server,
                "instance": source.instance,
                "heartbeat_seconds": min(settings.heartbeat_seconds, HTTP_HEARTBEAT_SECONDS_MAX),
            },
        )
    finally:
        outage.of = database
        await source.close()


def _remote_handlers(app: App) -> dict[str, Handler]:
    return {name: handler for name, handler in app.handlers.items() if not handler.needs_database}


def _check_remote_types(app: App) -> None:
    left = ", ".join(sorted(app.handlers.keys() - _remote_handlers(app).keys()))
    if left and not _remote_handlers(app):
        raise Invalid(
            f"a remote worker has nothing to do here, because all job types need the database ({left}): start the "
            "worker with the database's URL instead of --server",
            code="needs_database",
        )
    if left:
        log.info("this worker has no database, and leaves these job types to workers that have one: %s", left)


async def _say_goodbye(source: Source, slots: int) -> None:
    with contextlib.suppress(HoldfastError, TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await source.heartbeat([], liveness=Liveness.OFFLINE, slots=slots)


async def _release_and_exit(worker: Worker, leave: Callable[[], Awaitable[None]]) -> None:
    """Threads cannot be interrupted: release what still runs, to be claimed a moment later, and exit before that."""
    end = threading.Timer(EXIT_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()
    with contextlib.suppress(HoldfastError):
        await worker.release_unfinished(RELEASE_DELAY_SECONDS)
    await leave()


async def _stop_when_set(stop: asyncio.Event, worker: Worker) -> None:
    await stop.wait()
    worker.stop()


def _process_pool(app: App, options: WorkerOptions, slots: int) -> ProcessPool | None:
    """None where a child process could not import the app: a job that needs one then fails."""
    reference = options.reference or app.reference
    if reference is None:
        return None
    settings = app.settings
    return ProcessPool(
        reference,
        most=min(slots, settings.child_processes_max or cores()),
        clock=app.clock,
        idle_seconds=settings.child_idle_seconds,
        jobs_max=settings.child_jobs_max,
        rss_max_bytes=None if settings.child_memory_max_mb is None else settings.child_memory_max_mb * 2**20,
        settings=msgspec.to_builtins(settings),
        logs=inherited(),
        database=not options.server,
        metrics=app.declarations(),
    )


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
