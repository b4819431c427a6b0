"""What a broker must be able to do: carry hints to one worker of each kind. Redis, NATS and SQS each have a file."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from holdfast.errors import HoldfastError
from holdfast.model.hint import Hint


class BrokerError(HoldfastError):
    """It cannot be reached, or will not have it. Nothing is lost: hints go by the database until it is back."""

    code = "broker_unavailable"


class ReceivedHint(NamedTuple):
    """A hint that came, and what its broker needs to hear that it was seen to."""

    hint: Hint
    receipt: Any


class Broker(Protocol):
    """Every call ends within a few seconds, or raises `BrokerError`; one that failed may be made again, and
    `receive` may be cancelled at any moment: a hint that comes just then goes to another, soon.

    A message is never trusted: what is no hint is dropped in here, and counted in `garbage`.
    """

    garbage: int

    async def open(self) -> None:
        """Make whatever is missing there, streams and groups included; also after it was flushed. May be repeated."""
        ...

    async def send(self, hints: list[Hint]) -> None: ...

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        """As soon as there are some, the most urgent first; none when the time is up.

        `SubscriptionLost`: what `open` made is gone, and with it hints that nobody has seen.
        """
        ...

    async def settle(self, seen: list[ReceivedHint]) -> None:
        """They were looked at, and need not come again."""
        ...

    async def give_back(self, unseen: list[ReceivedHint]) -> None:
        """They are for others."""
        ...

    async def close(self) -> None: ...


class SubscriptionLost(BrokerError):
    """Somebody deleted our group or flushed the broker."""
