"""A caller that is cancelled during its commit: workers are still woken for its job."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.model.hint import Hint
from holdfast.store import open_store
from tests.engine.hooking import effect
from tests.worker.in_process import until

pytestmark = pytest.mark.sqlite


async def test_workers_are_woken_for_a_job_whose_creator_was_cancelled_during_the_commit(fresh_sqlite_url: str) -> None:
    engine = Engine(await open_store(fresh_sqlite_url, Clock(), Ids()))
    writing, go_on = threading.Event(), threading.Event()
    told: list[Hint] = []

    def wake(hints: Sequence[Hint]) -> None:
        told.extend(hints)

    engine.ctx.wakers.append(wake)

    @effect(engine, "create", job_type="t")
    async def in_the_middle_of_it(*_: Any) -> None:
        writing.set()
        go_on.wait(60)

    creating = asyncio.create_task(engine.create(NewJob(type="t")))
    await until(writing.is_set)
    creating.cancel()
    with suppress(asyncio.CancelledError):
        await creating
    go_on.set()
    await until(lambda: told)
    [job] = (await engine.reads.page()).jobs
    assert [hint.job for hint in told] == [job.id]
    await engine.close()
