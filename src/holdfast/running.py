"""One worker process, whole: registered, present, kept, maintaining, and working until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.app import App
from holdfast.assembly import open_presence, retention
from holdfast.direct import DirectSource
from holdfast.errors import HoldfastError
from holdfast.loops import Maintenance
from holdfast.model import Liveness
from holdfast.recovery import DeathWatch
from holdfast.worker.board import Board
from holdfast.worker.children import Children
from holdfast.worker.keeper import Keeper
from holdfast.worker.runtime import Plan, Worker

GOODBYE_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What whoever starts a worker says about it; None leaves it to the settings."""

    queues: list[str] | None = None
    concurrency: int | None = None
    name: str | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None  # of the app, for child processes
    replaceable: bool = False


async def work(app: App, wish: Wish, *, stop: asyncio.Event, on_ready: Callable[[Worker], None]) -> Worker:
    """Work until `stop` is set and everything is handed back. Returns the worker, whose threads may not have ended."""
    settings, clock, ids = app.settings, app.clock, app.ids
    engine = await app.engine()
    slots = wish.concurrency or settings.concurrency
    async with contextlib.AsyncExitStack() as stack:
        presence = await open_presence(settings, clock, ids, queues=wish.queues)
        stack.push_async_callback(presence.close)
        engine.rules.wakers.append(presence.heard)
        registered = await engine.register(
            name=wish.name,
            capabilities=wish.capabilities,
            metadata={"host": platform.node(), "pid": os.getpid(), "jobTypes": sorted(app.handlers)},
            slots=slots,
            heartbeat_seconds=settings.heartbeat_seconds,
            offline_seconds=settings.worker_offline_seconds,
        )
        source = DirectSource(engine, presence, clock, worker=registered.id)
        state = await stack.enter_async_context(app.lifespan_state())
        board = Board.create()
        worker = Worker(
            source,
            app.handlers,
            plan=Plan(
                concurrency=slots,
                queues=wish.queues,
                stop_grace_seconds=settings.stop_grace_seconds,
                replaceable=wish.replaceable,
            ),
            around=app.surroundings,
            state=state,
            board=board,
            children=_children(app, wish, slots),
            clock=clock,
            ids=ids,
        )
        spec = {
            "worker": registered.id,
            "heartbeat_seconds": settings.heartbeat_seconds,
            "watchdog_seconds": settings.watchdog_seconds,
            "settings": settings,
        }
        keeper = await Keeper.start(board, spec, worker.hear, clock=clock)
        stack.push_async_callback(keeper.close)
        beside = [
            asyncio.create_task(task)
            for task in (
                Maintenance(engine, clock, ids, every=settings.sweep_seconds, retention=retention(settings)).run(),
                DeathWatch(engine, presence, clock, ids).run(),
                _stop_when_told(stop, worker),
            )
        ]
        try:
            on_ready(worker)
            await worker.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await engine.heartbeat(registered.id, [], liveness=Liveness.OFFLINE)
        return worker


async def _stop_when_told(stop: asyncio.Event, worker: Worker) -> None:
    await stop.wait()
    worker.stop()


def _children(app: App, wish: Wish, most: int) -> Children | None:
    """Where the app cannot be imported again there are no child processes; a job that needs one says so."""
    reference = wish.reference or app.reference
    if reference is None:
        return None
    settings = app.settings
    return Children(
        reference,
        most=most,
        clock=app.clock,
        jobs_max=settings.child_jobs_max,
        rss_max_bytes=None if settings.child_memory_max_mb is None else settings.child_memory_max_mb * 2**20,
        settings=msgspec.to_builtins(settings),
    )
