"""A receiver, and couriers that may go to it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.webhooks.deliverer import Courier
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import Sender
from tests.engine.log import settled
from tests.webhooks.receiver import Receiver, receiving

Couriers = Callable[..., Courier]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fans out has all that was committed before him to fan out."""
    fan_out = Engine.fan_out_webhooks

    async def when_settled(engine: Engine, *args: Any) -> Any:
        await settled(engine)
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
