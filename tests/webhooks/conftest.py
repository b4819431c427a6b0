"""A receiver, and couriers that may go to it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.engine.webhooks.operations import Webhooks
from holdfast.webhooks.deliverer import WebhookDeliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender
from tests.engine.log import settled
from tests.webhooks.receiver import Receiver, receiving

Couriers = Callable[..., WebhookDeliverer]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fans out has all that was committed before him to fan out."""
    fan_out = Webhooks.fan_out

    async def when_settled(webhooks: Webhooks, *args: Any) -> Any:
        await settled(webhooks)
        return await fan_out(webhooks, *args)

    monkeypatch.setattr(Webhooks, "fan_out", when_settled)


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
        return WebhookDeliverer(engine, engine.ctx.clock, engine.ctx.ids, senders[-1], **options)

    yield make
    for sender in senders:
        await sender.close()


@pytest.fixture
def courier(couriers: Couriers) -> WebhookDeliverer:
    return couriers()
