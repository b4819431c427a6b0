"""Browser sessions: after a login with a key, a cookie authenticates the browser. Only its digest is stored."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from holdfast.engine.context import EngineContext
from holdfast.model.key import SECRET_BITS, digest_of
from holdfast.model.numbers import check_number
from holdfast.store import Tx, q


class Session(NamedTuple):
    """A session that has not expired. The caller checks its key."""

    key_id: str
    expires_at: datetime


class NewSession(NamedTuple):
    """A new session with its token, which is not stored."""

    token: str
    expires_at: datetime


async def begin(tx: Tx, ctx: EngineContext, key_id: str, seconds: float) -> NewSession:
    check_number(seconds, "seconds")
    token = f"{ctx.ids.bits(SECRET_BITS):064x}"
    row = await tx.one(q.put_session, made=[(digest_of(token.encode()), key_id, float(seconds))])
    assert row is not None  # noqa: S101  (an insert of one row)
    return NewSession(token, row["expires_at"])


async def find_live(tx: Tx, digest: str) -> Session | None:
    row = await tx.one(q.live_session, digest=digest)
    return None if row is None else Session(row["key_id"], row["expires_at"])


async def end(tx: Tx, digest: str) -> bool:
    return await tx.one(q.end_session, digest=digest) is not None


async def mark_used(tx: Tx, digests: list[str]) -> None:
    await tx.all(q.sessions_were_used, digests=digests)


async def prune(tx: Tx, ctx: EngineContext) -> int:
    return len(await tx.all(q.prune_sessions, limit=ctx.limits.sweep_batch))
