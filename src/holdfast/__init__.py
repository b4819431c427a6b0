"""Holdfast: durable asynchronous jobs on PostgreSQL or SQLite."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.client import Client
    from holdfast.client.sync.client import SyncClient
    from holdfast.errors import JobFailed
    from holdfast.observe.tracing import trace_headers
    from holdfast.sdk.app import App
    from holdfast.sdk.handle import JobHandle
    from holdfast.store.migrate_connection import migrate_connection
    from holdfast.worker.context import Context, SyncContext
    from holdfast.worker.outcomes import Permanent, Reject, Retry, Snooze

    __version__: str

__all__ = [
    "App",
    "Client",
    "Context",
    "JobFailed",
    "JobHandle",
    "Permanent",
    "Reject",
    "Retry",
    "Snooze",
    "SyncClient",
    "SyncContext",
    "__version__",
    "migrate_connection",
    "trace_headers",
]

_HOME = {
    "App": "holdfast.sdk.app",
    "Client": "holdfast.client.client",
    "Context": "holdfast.worker.context",
    "JobFailed": "holdfast.errors",
    "JobHandle": "holdfast.sdk.handle",
    "Permanent": "holdfast.worker.outcomes",
    "Reject": "holdfast.worker.outcomes",
    "Retry": "holdfast.worker.outcomes",
    "Snooze": "holdfast.worker.outcomes",
    "SyncClient": "holdfast.client.sync.client",
    "SyncContext": "holdfast.worker.context",
    "migrate_connection": "holdfast.store.migrate_connection",
    "trace_headers": "holdfast.observe.tracing",
}


def __getattr__(name: str) -> Any:
    """Each name is imported on first use, so that a process pays only for the parts it needs."""
    if name == "__version__":
        return import_module("importlib.metadata").version("holdfast")
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
