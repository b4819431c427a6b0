"""A write whose every effect can be counted: each run adds one to the slots of a worker."""

from typing import Any

from holdfast.store import Tx, q
from holdfast.store.base import Store
from holdfast.store.queries import Query

COUNT_UP = Query(
    "count_up", "UPDATE holdfast_workers SET slots = coalesce(slots, 0) + 1 WHERE id = :id RETURNING slots"
)
SET_SLOTS = Query("set_slots", "UPDATE holdfast_workers SET slots = :slots WHERE id = :id RETURNING slots")


def counter_id(number: int = 1) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


async def add_counters(store: Store, *numbers: int) -> None:
    async def work(tx: Tx) -> None:
        for number in numbers or (1,):
            await tx.one(
                q.put_worker,
                id=counter_id(number),
                name=None,
                kind="local",
                tenants=None,
                capabilities="{}",
                offers="[]",
                metadata="{}",
                slots=0,
                heartbeat_seconds=10.0,
                offline_seconds=90.0,
            )

    await store.write(work)


async def count_up(tx: Tx, number: int = 1) -> Any:
    row = await tx.one(COUNT_UP, id=counter_id(number))
    assert row is not None
    return row["slots"]


async def counted(store: Store, number: int = 1) -> Any:
    async def work(tx: Tx) -> Any:
        row = await tx.one(q.worker, id=counter_id(number))
        assert row is not None
        return row["slots"]

    return await store.read(work)
