"""release: a worker hands a job back unfinished. The attempt is given back; snooze is a release with a delay."""

from __future__ import annotations

from holdfast.engine.decide import ends_canceled
from holdfast.engine.held import check_worker, settle_or_refuse, token_rows
from holdfast.engine.move import move
from holdfast.engine.rules import Rules
from holdfast.errors import LeaseLost
from holdfast.lifecycle import Actor, State
from holdfast.model.numbers import check_number
from holdfast.model.reports import Freed, Settled
from holdfast.store import Row, Tx, q


async def release(tx: Tx, rules: Rules, items: list[Freed], *, worker: str) -> list[Settled | LeaseLost]:
    """Back to the queue, at once or after a delay. A job whose cancel was asked for ends here instead."""
    check_worker(worker)
    for item in items:
        check_number(item.delay_seconds, "delay_seconds", code="invalid_delay")
    held = await tx.all(q.held_jobs, held=token_rows([item.held for item in items]), worker=worker)
    stopping = {row["id"] for row in held if await _ends_canceled(tx, rules, row)}
    freed = [
        (item.id, item.token, item.reason, float(item.delay_seconds))
        for item in sorted(items, key=lambda item: item.id)
        if item.held.plausible and item.id not in stopping
    ]
    stopped = [(item.id, item.token, None) for item in items if item.id in stopping]
    moved = []
    if freed:
        moved += await move(tx, rules, q.release_jobs, actor=Actor.WORKER, freed=freed, worker=worker)
    if stopped:
        moved += await move(tx, rules, q.cancel_running, actor=Actor.WORKER, stopped=sorted(stopped), worker=worker)
    tx.after_commit(lambda: rules.wake(row for row in moved if row["state"] == State.QUEUED))
    settled = {row["id"]: State(row["state"]) for row in moved}
    return [
        Settled(item.id, settled[item.id])
        if item.id in settled
        else await settle_or_refuse(
            tx, item.held, worker, {"released": {"reason": item.reason}, "canceled": {"error": None}}
        )
        for item in items
    ]


async def _ends_canceled(tx: Tx, rules: Rules, row: Row) -> bool:
    if row["cancel_requested_at"] is None:
        return False
    snapshot = await rules.registry.snapshot(tx, row["policy"])
    return ends_canceled(snapshot.machine)
