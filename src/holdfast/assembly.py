"""Picks the implementations: settings go in, an engine comes out."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.batches import Batches
from holdfast.clock import Clock
from holdfast.engine import Created, Engine, Limits, Retention
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.model import NewJob
from holdfast.settings import Settings, load
from holdfast.store import PostgresStore, SqliteStore, open_store
from holdfast.store.hints import Notifier
from holdfast.store.presence import Presence
from holdfast.store.presence import open_presence as _open_presence


async def open_engine(
    settings: Settings | None = None,
    *,
    lifecycles: Lifecycles | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Engine:
    """The engine that the settings describe, on the database they name."""
    settings, clock, ids = settings or load(), clock or Clock(), ids or Ids()
    return Engine(
        await open_store(settings.url, clock, ids),
        lifecycles=lifecycles,
        clock=clock,
        ids=ids,
        limits=Limits(
            sweep_seconds=settings.sweep_seconds,
            startup_grace_seconds=settings.startup_grace_seconds,
            accept_orphans_seconds=settings.accept_orphans_seconds,
            error_max_chars=settings.error_max_chars,
            worker_json_bytes_max=settings.worker_json_max_bytes,
        ),
        defaults={
            "lease_seconds": settings.lease_seconds,
            "heartbeat_seconds": settings.heartbeat_seconds,
            "max_attempts": settings.max_attempts,
            "backoff_base_seconds": settings.backoff_base,
            "backoff_factor": settings.backoff_factor,
            "backoff_cap_seconds": settings.backoff_cap,
            "backoff_jitter": settings.backoff_jitter,
            "no_progress_seconds": settings.no_progress_seconds,
            "max_runtime_seconds": settings.max_runtime_seconds,
            "idempotency_window_seconds": settings.idempotency_ttl,
            "offline_seconds": settings.worker_offline_seconds,
        },
    )


@dataclass
class Opened:
    """What a process that creates jobs needs: the engine, and a way for many callers to share a commit."""

    engine: Engine
    creates: Batches[NewJob, Created]
    declared: set[str] = field(default_factory=set)
    notifier: Notifier | None = None

    async def close(self) -> None:
        """What was created and not yet told is told first."""
        if self.notifier is not None:
            await self.notifier.close()
        await self.engine.close()

    async def let_go(self) -> None:
        """Its event loop has ended without `close`: sockets went with it, the threads of a SQLite store did not."""
        if isinstance(self.engine.store, SqliteStore):
            await self.engine.close()


async def open_all(settings: Settings, *, lifecycles: Lifecycles, clock: Clock, ids: Ids) -> Opened:
    engine = await open_engine(settings, lifecycles=lifecycles, clock=clock, ids=ids)
    notifier = Notifier(engine.store, clock) if isinstance(engine.store, PostgresStore) else None
    if notifier is not None:
        engine.rules.wakers.append(notifier)
    return Opened(engine, Batches(engine.create_many), notifier=notifier)


async def open_presence(settings: Settings, clock: Clock, ids: Ids, *, queues: list[str] | None) -> Presence:
    """A worker process among the others: how its death is seen, and how it hears of work."""
    return await _open_presence(settings.url, clock, ids, queues=queues)


def retention(settings: Settings) -> Retention:
    """What `prune` keeps and for how long; a state without a setting is kept for ever."""
    return Retention(
        succeeded=settings.retain_succeeded_seconds,
        dead=settings.retain_dead_seconds,
        canceled=settings.retain_canceled_seconds,
        rejected=settings.retain_rejected_seconds,
    )
