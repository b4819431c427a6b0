"""The keys of the advisory locks that Holdfast takes in PostgreSQL."""

from __future__ import annotations

from hashlib import sha256

NAMESPACE = "holdfast"


def lock_key(purpose: str) -> int:
    """64 bits of a hash, so that advisory locks of an application do not collide."""
    return int.from_bytes(sha256(f"{NAMESPACE}:{purpose}".encode()).digest()[:8], signed=True)


MIGRATION = lock_key("migration")


def worker_lock(instance: str) -> int:
    """The advisory lock that a worker process holds while it lives."""
    return lock_key(f"worker:{instance}")
