"""The keys of the advisory locks that Holdfast takes in PostgreSQL, where an application may take locks of its own."""

from __future__ import annotations

from hashlib import sha256

NAMESPACE = "holdfast"


def lock_key(purpose: str) -> int:
    """64 bits of a hash, so that no lock of an application has the same key."""
    return int.from_bytes(sha256(f"{NAMESPACE}:{purpose}".encode()).digest()[:8], signed=True)


MIGRATION = lock_key("migration")


def worker_lock(instance: str) -> int:
    """Held by a worker process as long as it lives."""
    return lock_key(f"worker:{instance}")
