"""`fake_context()`: a handler is called as a function, and the test reads what it reported."""

from typing import Any

import pytest

from holdfast import App, Context, SyncContext
from holdfast.errors import Invalid, LeaseLost
from holdfast.testing import fake_context

app = App()


@app.job()
async def convert(ctx: Context, pages: list[str]) -> dict[str, Any]:
    start = ctx.checkpoint or 0
    await ctx.progress(10, "begin", counters={"pages": len(pages)})
    size = await ctx.step("measure", lambda: len(pages))
    done = []
    async for part in ctx.parts(pages):
        if ctx.cancel_requested:
            return {"canceled after": done}
        done.append(part.name)
        await part.progress(50)
    await ctx.counters(done=len(done))
    await ctx.save(start + len(done))
    return {"size": size, "done": done, "attempt": ctx.attempt, "state": ctx.state}


@app.job()
def convert_plainly(ctx: SyncContext, pages: list[str]) -> list[str]:
    ctx.progress(10, "begin")
    ctx.step("measure", lambda: len(pages))
    done = [part.name for part in ctx.parts(pages)]
    ctx.save({"done": len(done)})
    return done


async def test_a_fake_context_records_the_reports_of_a_handler() -> None:
    ctx = fake_context(state={"pool": 1}, attempt=2)
    result = await convert(ctx, ["a", "b"])
    assert result == {"size": 2, "done": ["a", "b"], "attempt": 2, "state": {"pool": 1}}
    said = ctx.recorded
    assert said.progress[0] == (10, "begin")
    assert (said.percent, said.counters, said.checkpoints) == (100, {"pages": 2, "done": 2}, [2])
    assert (said.steps, said.finished_parts) == ({"measure": 2}, ["measure", "a", "b"])
    assert ctx.checkpoint == 2


async def test_a_fake_context_accepts_the_state_of_earlier_attempts() -> None:
    ctx = fake_context(attempt=2, checkpoint=5, steps={"measure": 99}, finished_parts=["a"])
    result = await convert(ctx, ["a", "b"])
    assert (result["size"], result["done"], ctx.recorded.checkpoints) == (99, ["b"], [6])


async def test_a_fake_context_simulates_a_cancel_and_a_lost_lease() -> None:
    ctx = fake_context()
    ctx.cancel()
    assert await convert(ctx, ["a"]) == {"canceled after": []}
    lost = fake_context()
    lost.lost = True
    with pytest.raises(LeaseLost):
        await convert(lost, ["a"])


def test_a_sync_fake_context_works_with_a_sync_handler() -> None:
    ctx = fake_context(sync=True, finished_parts=["a"])
    assert convert_plainly(ctx, ["a", "b"]) == ["b"]
    assert (ctx.recorded.steps, ctx.recorded.checkpoints) == ({"measure": 2}, [{"done": 1}])
    assert ctx.recorded.progress[0] == (10, "begin")
    ctx.cancel()
    assert ctx.cancel_requested


async def test_a_fake_context_refuses_values_that_cannot_be_stored() -> None:
    with pytest.raises(Invalid, match="checkpoint"):
        await fake_context().save({"a": object()})
