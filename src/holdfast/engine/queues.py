"""Pausing a queue stops claims, not creates, and does not touch what runs."""

from __future__ import annotations

from holdfast.model.names import check_name
from holdfast.store import Tx, q


async def pause(tx: Tx, name: str, *, tenant: str = "default", by: str | None = None) -> None:
    if by is not None:
        check_name(by, "name of who pauses")
    await tx.one(q.pause_queue, tenant=check_name(tenant, "tenant"), name=check_name(name, "queue"), by=by)


async def resume(tx: Tx, name: str, *, tenant: str = "default") -> bool:
    return await tx.one(q.resume_queue, tenant=check_name(tenant, "tenant"), name=check_name(name, "queue")) is not None
