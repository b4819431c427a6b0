"""A wrapper around a real broker that drops, duplicates and reorders hints at random, from a seed."""

import random
from dataclasses import dataclass, field

from holdfast.dispatch.broker import Broker, ReceivedHint
from holdfast.model.hint import Hint


@dataclass
class FaultRates:
    """The share of hints that each fault affects, when they are sent and when they are received."""

    dropped: float = 0.0
    duplicated: float = 0.0
    reordered: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    injected: int = 0  # the number of faults so far

    def affects(self, share: float) -> bool:
        affected = self.rng.random() < share
        self.injected += affected
        return affected


class UnreliableBroker:
    def __init__(self, broker: Broker, rates: FaultRates) -> None:
        self._broker, self._noise = broker, rates
        self._delayed: list[Hint] = []  # sent together with later hints, or never
        self.open, self.ack, self.nack, self.close = (
            broker.open,
            broker.ack,
            broker.nack,
            broker.close,
        )

    @property
    def garbage(self) -> int:
        return self._broker.garbage

    async def send(self, hints: list[Hint]) -> None:
        rates = self._noise
        kept = [hint for hint in self._delayed + hints if not rates.affects(rates.dropped)]
        kept += [hint for hint in kept if rates.affects(rates.duplicated)]
        self._delayed = [hint for hint in kept if rates.affects(rates.reordered)]
        for hint in self._delayed:
            kept.remove(hint)
        if rates.reordered:
            rates.rng.shuffle(kept)
        if kept:
            await self._broker.send(kept)

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        rates, found = self._noise, await self._broker.receive(seconds, most)
        dropped = [delivery for delivery in found if rates.affects(rates.dropped)]
        if dropped:
            await self._broker.ack(dropped)
        kept = [delivery for delivery in found if delivery not in dropped]
        kept += [delivery for delivery in kept if rates.affects(rates.duplicated)]
        if rates.reordered:
            rates.rng.shuffle(kept)
        return kept
