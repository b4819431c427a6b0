"""A receiver, and couriers that may go to it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.webhooks.deliverer import WebhookDeliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender
from tests.engine.log import settled
from tests.webhooks.receiver import Receiver, receiving

Couriers = Callable[..., WebhookDeliverer]


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
    senders: list[WebhookSender] = []

    def make(**options: Any) -> WebhookDeliverer:
        senders.append(WebhookSender(Egress(private=True)))
        return WebhookDeliverer(engine, engine.rules.clock, engine.rules.ids, senders[-1], **options)

    yield make
    for sender in senders:
        await sender.close()


@pytest.fixture
def courier(couriers: Couriers) -> WebhookDeliverer:
    return couriers()
