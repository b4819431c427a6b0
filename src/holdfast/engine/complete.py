"""complete: an execution succeeded. Its result and its end are one commit; a repeat gets the same answer."""

from __future__ import annotations

from holdfast.engine.held import check_worker, settle_or_refuse, token_rows
from holdfast.engine.move import move
from holdfast.engine.rules import Rules
from holdfast.errors import LeaseLost
from holdfast.lifecycle import Actor, State
from holdfast.model.job import RESULT_BYTES_MAX
from holdfast.model.json import encode
from holdfast.model.reports import Done, Settled, is_plausible
from holdfast.store import Tx, q


async def complete(tx: Tx, rules: Rules, items: list[Done], *, worker: str) -> list[Settled | LeaseLost]:
    """Finish the jobs this worker still leases; a lost lease changes nothing."""
    check_worker(worker)
    texts = [
        None if item.result is None else encode(item.result, "result", max_bytes=RESULT_BYTES_MAX) for item in items
    ]
    rows = sorted(
        (item.id, item.token, text)
        for item, text in zip(items, texts, strict=True)
        if is_plausible(item.id, item.token)
    )
    if rules.hooks.guarded("complete"):
        by_id = {item.id: item for item in items}
        for row in await tx.all(q.held_jobs, held=token_rows([item.held for item in items]), worker=worker):
            await rules.hooks.check(tx, "complete", by_id[row["id"]], row["lifecycle"], row["type"])
    moved = await move(tx, rules, q.complete_jobs, actor=Actor.WORKER, brief=True, done=rows, worker=worker)
    done = {row["id"] for row in moved}
    return [
        Settled(item.id, State.SUCCEEDED)
        if item.id in done
        else await settle_or_refuse(tx, item.held, worker, {"succeeded": {"result": text}})
        for item, text in zip(items, texts, strict=True)
    ]
