"""Steps that stories about webhooks share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.engine import Engine
from holdfast.engine.webhooks.webhooks import NewWebhook
from holdfast.model import NewJob
from holdfast.model.webhook import EVENTS, Delivery, WebhookFilter
from holdfast.webhooks.deliverer import WebhookDeliverer
from tests.engine.log import settled

NOWHERE = "http://127.0.0.1:9/hook"  # nobody listens on that port


async def subscribe(engine: Engine, url: str = NOWHERE, *, tenant: str = "default", **wanted: Any) -> str:
    await settled(engine)  # reading begins behind all that happened; on a clock that stands still, times do not tell it
    made = await engine.webhooks.subscribe(
        NewWebhook(url=url, tenant=tenant, wanted=WebhookFilter(**{"events": EVENTS, **wanted}))
    )
    return made.webhook.id


async def create(engine: Engine, **job: Any) -> str:
    return (await engine.create(NewJob(**{"type": "T", **job}))).id


async def fail(engine: Engine, worker: str, *, code: str = "E_X", permanent: bool = True, **job: Any) -> str:
    """A job that was tried once, in vain."""
    created = await create(engine, **job)
    [lease] = await engine.claim(worker, types=[job.get("type", "T")])
    await engine.fail(worker, lease.id, lease.token, code, permanent=permanent, retry_after_seconds=3600)
    return created


async def complete(engine: Engine, worker: str, **job: Any) -> str:
    created = await create(engine, **job)
    [lease] = await engine.claim(worker, types=[job.get("type", "T")])
    await engine.complete(worker, lease.id, lease.token)
    return created


async def deliver(courier: WebhookDeliverer) -> int:
    """Everything that is due now, once."""
    await courier.fan_out()
    sent = 0
    while started := await courier.start_deliveries():
        sent += started
        await courier.wait_until_idle()
    return sent


async def sent_to(engine: Engine, webhook: str) -> list[Delivery]:
    """The oldest first."""
    return (await engine.webhooks.deliveries(webhook, limit=200)).deliveries[::-1]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll, generously."""
    for _ in range(1500):
        if await condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")
