"""Secrets that all servers of one database share, so that each can verify what another has signed."""

from __future__ import annotations

from holdfast.engine.context import EngineContext
from holdfast.store import Tx, q

BITS = 256


async def secret(tx: Tx, ctx: EngineContext, name: str) -> bytes:
    """The first call creates it."""
    row = await tx.one(q.secret, name=name)
    if row is None:
        await tx.one(q.put_secret, name=name, value=f"{ctx.ids.bits(BITS):064x}")
        row = await tx.one(q.secret, name=name)  # this one, or that of a concurrent call
    assert row is not None  # noqa: S101
    return bytes.fromhex(row["value"])
