"""Sends and receives hints in the dispatch modes that use a broker."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker, OutageLogger
from holdfast.dispatch.broker import Broker
from holdfast.dispatch.listener import Listener
from holdfast.dispatch.mode import MODES
from holdfast.dispatch.probe import BrokerProbe
from holdfast.dispatch.sender import HintSender, Tally, Wake
from holdfast.ids import Ids

log = logging.getLogger(__name__)


class Dispatch:
    """Sender, listener and probe of a process share one circuit breaker."""

    def __init__(
        self, mode: str, make: Callable[[str | None], Broker], clock: Clock, ids: Ids, *, by_database: Wake | None
    ) -> None:
        """`make` creates a broker for a kind of worker; for None, one that only sends."""
        self.mode, self._make, self._clock = MODES[mode], make, clock
        self.breaker = Breaker(clock, ids)
        OutageLogger(
            self.breaker,
            lost=partial(log.warning, "connection to the broker lost; hints go through the database: %s"),
            back=partial(log.info, "the broker is reachable again; hints go through it"),
        )
        self._hints: Tally = Counter()
        self._outgoing = make(None)
        self.sender = HintSender(self._outgoing, self.breaker, clock, self._hints, self.mode, by_database)
        self.listener: Listener | None = None

    def listen(self, kind: str, heard: Callable[[], None], **options: Any) -> Listener:
        """`heard` is called for each hint; see `Listener` for the options."""
        self.listener = Listener(
            self._make(kind), self.breaker, self._clock, self._hints, self.mode, heard=heard, **options
        )
        return self.listener

    def probe(self) -> BrokerProbe:
        """For a process that only sends."""
        return BrokerProbe(self._outgoing, self.breaker, self._clock)

    @property
    def up(self) -> bool:
        """Whether the broker is reachable, as far as this process knows."""
        return self.breaker.closed if self.listener is None else self.listener.up

    @property
    def tally(self) -> Tally:
        """Hints by (direction, outcome): `sent` through `broker` or `database`, or `dropped`; `received`: it `woke` the
        worker, its job was already `claimed`, it was for `others`, `given_back`, or `garbage`."""
        garbage = 0 if self.listener is None else self.listener.garbage
        return self._hints + Counter({("received", "garbage"): garbage})

    async def close(self) -> None:
        """Send pending hints, then close."""
        await self.sender.close()
        if self.listener is not None:
            await self.listener.close()


def kind_of_worker(queues: Collection[str] | None, types: Collection[str] | None, offers: Collection[str] = ()) -> str:
    """Workers that can claim the same jobs are of one kind; each hint wakes one of them."""
    listed = [None if names is None else sorted(names) for names in (queues, types, offers)]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]
