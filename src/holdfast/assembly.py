"""Picks the implementations: settings go in, an engine comes out."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.engine import Engine, Limits, Retention
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.settings import Settings, load
from holdfast.store import open_store


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


def retention(settings: Settings) -> Retention:
    """What `prune` keeps and for how long; a state without a setting is kept for ever."""
    return Retention(
        succeeded=settings.retain_succeeded_seconds,
        dead=settings.retain_dead_seconds,
        canceled=settings.retain_canceled_seconds,
        rejected=settings.retain_rejected_seconds,
    )
