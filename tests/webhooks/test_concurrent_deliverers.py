"""Couriers as servers run them, on each store."""

import asyncio

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.ids import SeededIds
from holdfast.store import open_store
from holdfast.webhooks.deliverer import WebhookDeliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender
from tests.webhooks.conftest import Couriers
from tests.webhooks.receiver import Receiver
from tests.webhooks.steps import create, deliver, subscribe


async def test_two_deliverers_share_the_deliveries_and_send_nothing_twice(
    engine: Engine, couriers: Couriers, receiver: Receiver
) -> None:
    await subscribe(engine, receiver.url)
    jobs = {await create(engine) for _ in range(30)}
    await asyncio.gather(*(deliver(courier) for courier in (couriers(), couriers())))
    while await deliver(couriers()):
        continue
    assert len(receiver.got) == 30
    assert {got.said["data"]["jobId"] for got in receiver.got} == jobs


async def test_a_running_deliverer_wakes_up_for_a_new_webhook(store_url: str, receiver: Receiver) -> None:
    """On the real clock, as a server runs it."""
    clock, ids = Clock(), SeededIds(7)
    engine = Engine(await open_store(store_url, clock, ids), clock=clock, ids=ids)
    courier = WebhookDeliverer(engine, clock, ids, WebhookSender(Egress(private=True)))
    running = asyncio.create_task(courier.run())
    await asyncio.sleep(0.05)
    await subscribe(engine, receiver.url)
    courier.wake()
    for _ in range(10):
        await create(engine)
    await receiver.has(10)
    running.cancel()
    await asyncio.wait([running])
    await engine.close()
