"""complete: an attempt succeeded. One commit stores the result and ends the job; a repeat gets the same answer."""

from __future__ import annotations

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.hooks.moves import ask_guards, in_two_passes
from holdfast.engine.leases import Refusal, check_worker, in_rounds, plausible, settle_or_refuse, token_rows
from holdfast.engine.move import move
from holdfast.lifecycle import Actor, State
from holdfast.model.job import RESULT_BYTES_MAX
from holdfast.model.json import encode
from holdfast.model.reports import Complete, Settled
from holdfast.store import Tx, q

_SUCCEEDED = State.SUCCEEDED  # in a module it is found faster than in its class


@in_rounds
async def complete(tx: Tx, ctx: EngineContext, worker: str, items: list[Complete]) -> list[Settled | Refusal]:
    """Complete the jobs whose lease this worker holds; a report with a lost lease changes nothing."""
    check_worker(worker)
    texts = {item.id: _text(item) for item in items}

    async def settle(which: Which, some: list[Complete]) -> dict[str, Settled]:
        if which == ctx.mine and ctx.hooks.guarded("complete") and not await _allowed(tx, ctx, some, worker):
            return {}
        rows = sorted([(item.id, item.token, texts[item.id]) for item in plausible(some)])
        query = which(q.complete_jobs)
        moved = await move(tx, ctx, query, actor=Actor.WORKER, brief=True, done=rows, worker=worker)
        return {job: Settled(job, _SUCCEEDED) for job in [row["id"] for row in moved]}

    settled = await in_two_passes(tx, ctx, "complete", items, settle)
    return [
        settled.get(item.id) or await settle_or_refuse(tx, ctx, item, worker, {"succeeded": {"result": texts[item.id]}})
        for item in items
    ]


async def _allowed(tx: Tx, ctx: EngineContext, items: list[Complete], worker: str) -> bool:
    """Ask the guards. False: none of the jobs needs hooks of this process."""
    held = await tx.all(ctx.mine(q.held_jobs), held=token_rows(items), worker=worker)
    await ask_guards(tx, ctx, "complete", {item.id: item for item in items}, held)
    return bool(held)


def _text(item: Complete) -> str | None:
    return None if item.result is None else encode(item.result, "result", max_bytes=RESULT_BYTES_MAX)
