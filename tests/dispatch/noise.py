"""A wrapper around a real broker that loses, repeats and reorders what goes through it, as a seed says."""

import random
from dataclasses import dataclass, field

from holdfast.dispatch.broker import Broker, ReceivedHint
from holdfast.model.hint import Hint


@dataclass
class Noise:
    """The share of hints that each happens to, on their way there and on their way back."""

    lost: float = 0.0
    doubled: float = 0.0
    reordered: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    made: int = 0  # how often something happened

    def hits(self, share: float) -> bool:
        hit = self.chance.random() < share
        self.made += hit
        return hit


class Noisy:
    def __init__(self, broker: Broker, noise: Noise) -> None:
        self._broker, self._noise = broker, noise
        self._late: list[Hint] = []  # they go with some later ones, or never
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
        noise = self._noise
        kept = [hint for hint in self._late + hints if not noise.hits(noise.lost)]
        kept += [hint for hint in kept if noise.hits(noise.doubled)]
        self._late = [hint for hint in kept if noise.hits(noise.reordered)]
        for hint in self._late:
            kept.remove(hint)
        if noise.reordered:
            noise.chance.shuffle(kept)
        if kept:
            await self._broker.send(kept)

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        noise, found = self._noise, await self._broker.receive(seconds, most)
        lost = [delivery for delivery in found if noise.hits(noise.lost)]
        if lost:
            await self._broker.ack(lost)
        kept = [delivery for delivery in found if delivery not in lost]
        kept += [delivery for delivery in kept if noise.hits(noise.doubled)]
        if noise.reordered:
            noise.chance.shuffle(kept)
        return kept
