"""One worker process, whole: registered, present, kept, maintaining, and working until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.assembly.engine import extension_maintenance, open_presence, retention
from holdfast.assembly.startup_log import log_startup_warnings
from holdfast.background import Loop, Loops
from holdfast.client.client import Client
from holdfast.dispatch.dispatch import Dispatch, kind_of_worker
from holdfast.dispatch.listener import Listener
from holdfast.engine.declare import APP, refuse_severe
from holdfast.errors import HoldfastError
from holdfast.maintenance.crash_detector import CrashDetector
from holdfast.maintenance.maintainer import Maintainer
from holdfast.maintenance.rotation import Rotation
from holdfast.model import Liveness
from holdfast.model.names import capabilities_of
from holdfast.model.reports import Fleet
from holdfast.observe.logs import Logs, installed, job_lines
from holdfast.observe.tracing import exported
from holdfast.outage_log import outage
from holdfast.sdk.app import App
from holdfast.store.notify import by_queue
from holdfast.store.presence import Presence
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.heartbeat.heartbeater import Heartbeater, HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.loop_watch import watched
from holdfast.worker.processes.process_pool import ProcessPool
from holdfast.worker.runtime import Worker, WorkerConfig
from holdfast.worker.source import Source
from holdfast.worker.sources.database import DatabaseSource, NoBroker
from holdfast.worker.sources.http import HttpSource

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.worker.metrics import WorkerCounters

GOODBYE_SECONDS = 3.0
HANDED_OVER_SECONDS, LEAVE_SECONDS = 1.0, 0.8  # when a job may be claimed that ran here, and when this process is gone
IDLE_SHARE = 1 / 3  # of the time after which a silent worker is offline: so often it beats while it holds nothing
BEAT_SECONDS_MAX = 3.0  # of a remote worker, which learns of cancels by its beats alone


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What whoever starts a worker says about it; None leaves it to the settings."""

    queues: list[str] | None = None
    concurrency: int | None = None
    name: str | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None  # of the app, for child processes
    replaceable: bool = False
    server: str | None = None  # its address; without one, the database itself
    figures: WorkerCounters | None = None  # to be fed, where somebody reads them
    leave: Callable[[], Awaitable[None]] | None = None  # ends this process, where that is ours


@dataclass
class WorkerBackend:
    """Where a worker process stands: what it claims from, what its keeper must know, and what it does beside."""

    source: Source
    keeping: dict[str, Any]
    beside: dict[str, Loop] = field(default_factory=dict)
    hear: Callable[[Fleet], None] = lambda _: None  # how many live, each time that the keeper says so


async def work(app: App, wish: WorkerOptions, *, stop: asyncio.Event, on_ready: Callable[[Worker], None]) -> Worker:
    """Work until `stop` is set and everything is handed back. Returns the worker, whose threads may not have ended."""
    settings, clock = app.settings, app.clock
    slots = wish.concurrency or settings.concurrency
    loops = Loops(clock, app.ids)
    async with contextlib.AsyncExitStack() as stack:
        opened = _at_server(app, wish, slots) if wish.server else _at_database(app, wish, slots, loops)
        post = await stack.enter_async_context(opened)
        inside = await stack.enter_async_context(
            contextlib.AsyncExitStack()
        )  # what is left before jobs are handed over
        state = await inside.enter_async_context(app.lifespan_state())
        traces = await inside.enter_async_context(
            exported("holdfast-worker", wanted=settings.traces, per_second=settings.traces_per_second)
        )
        board = LeaseTable.create()
        worker = Worker(
            post.source,
            app.handlers,
            plan=WorkerConfig(
                concurrency=slots,
                queues=wish.queues,
                stop_grace_seconds=settings.stop_grace_seconds,
                timeout_grace_seconds=settings.timeout_grace_seconds,
                replaceable=wish.replaceable,
            ),
            around=app.middleware_stack,
            state=state,
            board=board,
            children=_children(app, wish, slots),
            clock=clock,
            ids=app.ids,
            figures=wish.figures,
            traces=traces,
            attempts=AttemptLog(job_lines(), app.lifecycles),
            database=None if wish.server else app.handler_database,
        )
        if wish.figures is not None:
            wish.figures.of(worker, loops)
        spec = {"watchdog_seconds": settings.watchdog_seconds, "settings": settings, "logs": _logs(), **post.keeping}

        def hear(news: HeartbeatResult) -> None:
            worker.on_heartbeat(news)
            post.hear(news.fleet)

        keeper = await Heartbeater.start(board, spec, hear, loops)
        stack.push_async_callback(keeper.close)
        inside.enter_context(watched(lambda: board.header().tick, worker.running))
        stopping = asyncio.create_task(_stop_when_told(stop, worker))
        try:
            async with loops.running(post.beside):
                on_ready(worker)
                await worker.run()
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            await _say_goodbye(post.source, slots)
        await inside.aclose()
        if worker.left and wish.leave is not None:
            await _hand_over(worker, wish.leave)
        return worker


@contextlib.asynccontextmanager
async def _at_database(app: App, wish: WorkerOptions, slots: int, loops: Loops) -> AsyncIterator[WorkerBackend]:
    """Registered under a name of its own, seen by its lock, and one of those who keep the database in order."""
    settings, clock, ids = app.settings, app.clock, app.ids
    engine = await app.engine()
    refuse_severe(engine.job_types.contradictions)
    turns = Rotation(clock, ids)
    idle_seconds = max(settings.heartbeat_seconds, settings.worker_offline_seconds * IDLE_SHARE)
    presence = await open_presence(settings, clock, ids, queues=wish.queues, loops=loops)
    waker = by_queue(presence.heard)
    engine.ctx.wakers.append(waker)
    try:
        registered = await engine.workers.register(
            name=wish.name,
            capabilities=wish.capabilities,
            metadata={
                "host": platform.node(),
                "pid": os.getpid(),
                "jobTypes": sorted(app.handlers),
                "queues": wish.queues,
                APP: app.name,
            },
            slots=slots,
            heartbeat_seconds=idle_seconds,
            offline_seconds=settings.worker_offline_seconds,
        )
        maintenance = Maintainer(
            engine, clock, ids, every=settings.sweep_seconds, retention=retention(settings), turns=turns
        )
        await log_startup_warnings(engine, retention(settings))
        if wish.figures is not None:
            measure(engine, wish.figures, await app.dispatch())

        def hear(fleet: Fleet) -> None:
            turns.hear(fleet)
            presence.among(fleet.live)

        async with _hints(app, wish, presence, lambda: turns.fleet.live) as hints:
            beside: dict[str, Loop] = {
                "maintenance": maintenance.run,
                "crash detector": CrashDetector(engine, presence, clock, ids, turns).run,
                "broker listener": hints.run,
            }
            if extensions := app.extensions.values():
                beside["extension maintenance"] = extension_maintenance(engine, clock, ids, extensions).run
            yield WorkerBackend(
                DatabaseSource(engine, presence, clock, worker=registered.id, hints=hints),
                {
                    "worker": registered.id,
                    "heartbeat_seconds": settings.heartbeat_seconds,
                    "idle_seconds": idle_seconds,
                    "presence": presence.lock,
                },
                beside,
                hear,
            )
    finally:
        engine.ctx.wakers.remove(waker)
        await presence.close()


def measure(engine: Engine, figures: WorkerCounters, dispatch: Dispatch | None = None) -> None:
    """What a worker beside the database can tell of it, and of the broker."""
    from holdfast.observe.attempt_metrics import AttemptMetrics
    from holdfast.observe.query_metrics import QueryTimes

    async def waiting() -> dict[str, int]:
        return {name: depth.waiting for name, depth in (await engine.reads.queue_stats()).types.items()}

    registry = figures.registry
    engine.store.watch = QueryTimes(registry, registry.queries, registry.query_errors, lambda query: (query.name,))
    engine.ctx.timing = AttemptMetrics(registry.taken, lost_only=True)
    figures.deep(waiting)
    registry.before.append(lambda: registry.reaped.values.update({(): engine.ctx.reaped}))
    registry.before.append(lambda: registry.hook_failures.values.update(engine.ctx.hook_failures))
    if dispatch is not None:
        registry.before.append(
            lambda: registry.broker.show(dispatch.tally, up=dispatch.up, breaker_open=not dispatch.breaker.closed)
        )


@contextlib.asynccontextmanager
async def _hints(
    app: App, wish: WorkerOptions, presence: Presence, live: Callable[[], int]
) -> AsyncIterator[Listener | NoBroker]:
    """Those of a broker, for workers like this one; else what the database says by itself."""
    dispatch, poll_seconds = await app.dispatch(), app.settings.poll_seconds
    if dispatch is None:
        yield NoBroker(poll_seconds)
        return
    kind = kind_of_worker(wish.queues, app.handlers, capabilities_of(wish.capabilities))
    listener = dispatch.listen(
        kind, presence.heard, queues=wish.queues, types=app.handlers, poll_seconds=poll_seconds, live=live
    )
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def _at_server(app: App, wish: WorkerOptions, slots: int) -> AsyncIterator[WorkerBackend]:
    """Its key says who it is. Everything else is the server's: to see deaths, to sweep, to know the database."""
    settings, clock, ids = app.settings, app.clock, app.ids
    client = Client(wish.server or "", settings.worker_key, clock=clock, ids=ids)
    source = HttpSource(client, clock, ids)
    outage.of = "the server"
    try:
        await source.heartbeat([], liveness=Liveness.IDLE, slots=slots)  # a key that is refused is said at once
        yield WorkerBackend(
            source,
            {
                "server": wish.server,
                "instance": source.instance,
                "heartbeat_seconds": min(settings.heartbeat_seconds, BEAT_SECONDS_MAX),
            },
        )
    finally:
        await source.close()


async def _say_goodbye(source: Source, slots: int) -> None:
    with contextlib.suppress(HoldfastError, TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await source.heartbeat([], liveness=Liveness.OFFLINE, slots=slots)


async def _hand_over(worker: Worker, leave: Callable[[], Awaitable[None]]) -> None:
    """Threads cannot be stopped, but processes can: what still runs in here is given back so that it may be claimed a
    moment later, and before that this process is gone, whatever happens."""
    end = threading.Timer(LEAVE_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()
    with contextlib.suppress(HoldfastError):
        await worker.hand_over(HANDED_OVER_SECONDS)
    await leave()


async def _stop_when_told(stop: asyncio.Event, worker: Worker) -> None:
    await stop.wait()
    worker.stop()


def _children(app: App, wish: WorkerOptions, slots: int) -> ProcessPool | None:
    """Where the app cannot be imported again there are no child processes; a job that needs one says so."""
    reference = wish.reference or app.reference
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
        logs=_logs(),
        database=not wish.server,
        metrics=app.declarations(),
    )


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _logs() -> Logs | None:
    """How processes that we start are to log: as we do, if this process is ours."""
    log = installed()
    return None if log is None else log.logs
