"""heartbeat: renew all leases of a worker in one statement; tell it which leases are lost and which jobs to cancel."""

from __future__ import annotations

from typing import Any

from holdfast.engine.leases import check_worker, token_rows
from holdfast.errors import InvalidField, NotFound
from holdfast.model import Liveness
from holdfast.model.names import quoted
from holdfast.model.numbers import check_count
from holdfast.model.reports import Beat, Fleet, HeldLease
from holdfast.store import Tx, q


async def heartbeat(
    tx: Tx, *, worker: str, leases: list[HeldLease], liveness: Liveness | None = None, slots: int | None = None
) -> Beat:
    """Renew the leases whose token is current. A late heartbeat cannot take a lost lease back."""
    check_worker(worker)
    if slots is not None:
        check_count(slots, "slots")
    _check_leases(leases)
    current = _liveness(liveness, leases)
    held = token_rows(leases)
    rows = await tx.all(q.renew_leases, held=held, worker=worker) if held else []
    renewed = {(row["id"], row["lease_token"]) for row in rows}
    known = await tx.one(q.beat_worker, worker=worker, liveness=current.value, slots=slots)
    if known is None:
        raise NotFound(f"worker {worker} is not registered; register it again", code="worker_not_found")
    return Beat(
        lost=[lease.id for lease in leases if (lease.id, lease.token) not in renewed],
        cancel=[row["id"] for row in rows if row["cancel_requested_at"] is not None],
        enabled=bool(known["enabled"]),
        expires_at={row["id"]: row["lease_expires_at"] for row in rows},
        fleet=Fleet(1 + known["others"], known["ahead"], bool(known["busy"])),
    )


def _check_leases(leases: Any) -> None:
    """Raise for values that are no leases; a lost lease is part of the answer."""
    for lease in leases if isinstance(leases, list) else [leases]:
        if not (isinstance(lease, HeldLease) and isinstance(lease.id, str) and isinstance(lease.token, str)):
            raise InvalidField(f"leases must be a list of HeldLease, got {quoted(lease)}", field="leases")


def _liveness(reported: Liveness | None, leases: list[HeldLease]) -> Liveness:
    """As the worker reports it, otherwise busy if it holds leases."""
    if reported is None:
        return Liveness.BUSY if leases else Liveness.IDLE
    try:
        return Liveness(reported)
    except ValueError:
        known = ", ".join(Liveness)
        raise InvalidField(f"liveness must be one of {known}, got {quoted(reported)}", field="liveness") from None
