"""A receiver, and couriers that may go to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.store import PostgresStore
from holdfast.store.queries import Query
from holdfast.webhooks.courier import Courier
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import Sender
from tests.webhooks.receiver import Receiver, receiving

Couriers = Callable[..., Courier]

_SETTLED = Query(
    "settled",
    "SELECT coalesce(max(pos), 0) < pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS settled FROM events",
)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the log waits for what is open anywhere on the server, also in the databases of other tests."""
    fan_out = Engine.fan_out_webhooks

    async def when_settled(engine: Engine, *args: Any) -> Any:
        if isinstance(engine.store, PostgresStore):
            for _ in range(100):
                row = await engine.store.read(lambda tx: tx.one(_SETTLED))
                if row is not None and row["settled"]:
                    break
                await asyncio.sleep(0.02)
        return await fan_out(engine, *args)

    monkeypatch.setattr(Engine, "fan_out_webhooks", when_settled)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def couriers(engine: Engine) -> AsyncIterator[Couriers]:
    """Makes couriers of the engine under test, on its movable clock, that may go to this machine."""
    senders: list[Sender] = []

    def make(**options: Any) -> Courier:
        senders.append(Sender(Egress(private=True)))
        return Courier(engine, engine.rules.clock, engine.rules.ids, senders[-1], **options)

    yield make
    for sender in senders:
        await sender.close()


@pytest.fixture
def courier(couriers: Couriers) -> Courier:
    return couriers()
