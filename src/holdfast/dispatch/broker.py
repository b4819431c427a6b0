"""The broker protocol: delivers each hint to one worker of each kind. Redis, NATS and SQS implement it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from holdfast.errors import HoldfastError
from holdfast.model.hint import Hint


class BrokerError(HoldfastError):
    """The broker is unreachable or rejected a call. Hints go through the database until it works again."""

    code = "broker_unavailable"


class ReceivedHint(NamedTuple):
    """A received hint, with the receipt that acknowledges it."""

    hint: Hint
    receipt: Any


class Broker(Protocol):
    """Every call ends within a few seconds or raises `BrokerError`, and can be repeated. `receive` can be cancelled at
    any time: a hint that arrives at that moment is soon delivered to another worker.

    Messages are not trusted: invalid ones are dropped by the broker class and counted in `garbage`.
    """

    garbage: int

    async def open(self) -> None:
        """Create missing streams, groups or queues, also after the broker was flushed. Can be repeated."""
        ...

    async def send(self, hints: list[Hint]) -> None: ...

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        """Wait for hints, the highest priority first; empty after the timeout.

        `SubscriptionLost`: what `open` created was deleted, with unread hints.
        """
        ...

    async def ack(self, received: list[ReceivedHint]) -> None:
        """Processed: do not deliver again."""
        ...

    async def nack(self, received: list[ReceivedHint]) -> None:
        """Deliver to another worker."""
        ...

    async def close(self) -> None: ...


class SubscriptionLost(BrokerError):
    """The stream, group or queue was deleted, or the broker was flushed."""
