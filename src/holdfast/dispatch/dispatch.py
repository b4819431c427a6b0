"""How hints leave this process and reach it, in the modes that use a broker."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.broker import Broker
from holdfast.dispatch.listener import Listener
from holdfast.dispatch.mode import MODES
from holdfast.dispatch.outage_log import Telling
from holdfast.dispatch.probe import BrokerProbe
from holdfast.dispatch.sender import HintSender, Tally, Wake
from holdfast.ids import Ids

log = logging.getLogger(__name__)


class Dispatch:
    """All of a process share one breaker: what one finds out about the broker, the others need not."""

    def __init__(
        self, mode: str, make: Callable[[str | None], Broker], clock: Clock, ids: Ids, *, by_database: Wake | None
    ) -> None:
        """`make` makes a broker for a kind of worker, or one that only sends."""
        self.mode, self._make, self._clock = MODES[mode], make, clock
        self.breaker = Breaker(clock, ids)
        Telling(self.breaker, lost=_lost, back=_back)
        self._hints: Tally = Counter()
        self._outgoing = make(None)
        self.sender = HintSender(self._outgoing, self.breaker, clock, self._hints, self.mode, by_database)
        self.listener: Listener | None = None

    def listen(self, kind: str, heard: Callable[[], None], **wishes: Any) -> Listener:
        """For whoever `heard` wakes; see `Listener` for the wishes."""
        self.listener = Listener(
            self._make(kind), self.breaker, self._clock, self._hints, self.mode, heard=heard, **wishes
        )
        return self.listener

    def watch(self) -> BrokerProbe:
        """For whoever does not listen."""
        return BrokerProbe(self._outgoing, self.breaker, self._clock)

    @property
    def up(self) -> bool:
        """So far as this process knows."""
        return self.breaker.closed if self.listener is None else self.listener.up

    @property
    def tally(self) -> Tally:
        """Hints by (direction, outcome): `sent` by `broker` or `database`, or `dropped`; `received`, and it `woke` us,
        was about a job we had `claimed`, or for `others`, or `given_back`, or was `garbage`."""
        garbage = 0 if self.listener is None else self.listener.garbage
        return self._hints + Counter({("received", "garbage"): garbage})

    async def close(self) -> None:
        """What waits to be sent is sent first."""
        await self.sender.close()
        if self.listener is not None:
            await self.listener.close()


def _lost(reason: str) -> None:
    log.warning("hints go by the database until the broker is back: %s", reason)


def _back() -> None:
    log.info("the broker is back: hints go through it again")


def kind_of_worker(queues: Collection[str] | None, types: Collection[str] | None, offers: Collection[str] = ()) -> str:
    """Workers that may take the same jobs are of one kind, and each hint wakes one of them."""
    listed = [None if names is None else sorted(names) for names in (queues, types, offers)]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]
