"""Dramatiq on Redis with its default middleware."""

import common
import dramatiq
from common import URL, ready
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop(data: str) -> None:
    common.noop(data)


opened = ready(noop.send)
