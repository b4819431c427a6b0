"""The claim loop of a worker: claims as many jobs as its slots can start, waits for hints, and survives outages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StoreError, WorkerDisabled
from holdfast.ids import Ids
from holdfast.outage_log import outage
from holdfast.worker.config import BUFFERED_SECONDS_MAX, TICK_SECONDS, WAIT_SECONDS
from holdfast.worker.connectivity import Connectivity
from holdfast.worker.execution import Execution
from holdfast.worker.executor import Executor
from holdfast.worker.handler import Isolation
from holdfast.worker.slots import Slots
from holdfast.worker.source import Claims, Source

BACKOFF_SECONDS, BACKOFF_MAX_SECONDS = 0.1, 2.0
RESERVED_SECONDS = 0.1  # between two claims for the reserved slot that find nothing
CLAIM = "claim jobs"

log = logging.getLogger("holdfast.worker")


class ClaimLoop:
    def __init__(
        self, source: Source, connectivity: Connectivity, slots: Slots, executor: Executor, clock: Clock, ids: Ids
    ) -> None:
        self._source, self._connectivity, self._slots, self._executor = source, connectivity, slots, executor
        self._clock, self._ids = clock, ids
        self._queues = slots.config.queues
        self.enabled = True  # an operator can disable a worker
        self._response_lost = False  # a claim failed that may have claimed jobs
        self._reserved_at = float("-inf")  # the last claim for the reserved slot that found nothing

    async def run(self) -> None:
        """Until the worker stops."""
        slots, backoff = self._slots, Backoff(self._ids, BACKOFF_SECONDS, BACKOFF_MAX_SECONDS)
        while not slots.stopping.is_set():
            try:
                await self._recover_claims()
                await self._claim_once()
                backoff.reset()
            except WorkerDisabled as error:
                log.warning("%s", error)
                await self._until_enabled()
            except HoldfastError as error:
                if error.code == "worker_not_found":  # deleted while it was offline: a new process registers anew
                    raise
                outage.failed(CLAIM, error)
                self._response_lost = True
                await self._clock.within(slots.stopping, backoff.next())
        with contextlib.suppress(StoreError):
            await self._recover_claims()

    async def _claim_once(self) -> None:
        slots = self._slots
        slots.capacity_changed.clear()
        slots.child_free.clear()
        wanted, types = slots.wanted(), slots.startable_types()
        if wanted:
            if not await self._claim(wanted, types):
                await self._until_hint(types)
        elif slots.wants_reserved():
            await self._claim_reserved()
        else:
            await slots.capacity_changed.wait()

    async def _claim(self, wanted: int, types: list[str]) -> int:
        """How many jobs were claimed. Of types that may need a child process, at most as many as children are free; if
        those were all taken, the other slots are for types that need none."""
        slots, children = self._slots, self._slots.unclaimed_children()
        if types == slots.inline_types or not slots.inline_types or wanted <= children:
            return await self._claim_of(types, wanted)
        claimed = await self._claim_of(types, children)
        if claimed == children and (wanted := slots.wanted()):
            claimed += await self._claim_of(slots.inline_types, wanted)
        return claimed

    async def _claim_reserved(self) -> None:
        """A job for the reserved slot, while no other slot is free. Where short jobs follow each other, it makes few
        claims."""
        types, pause = self._slots.reserved_types, self._reserved_at + RESERVED_SECONDS - self._clock.monotonic()
        if pause > 0 and await self._clock.within(self._slots.capacity_changed, pause):
            return
        if not await self._claim_of(types, 1, reserved=True):
            self._reserved_at = self._clock.monotonic()
            await self._until_hint(types, reserved=True)

    async def _claim_of(self, types: list[str], wanted: int, *, reserved: bool = False) -> int:
        claims = await self._connectivity.call(
            self._source.claim(wanted, queues=self._queues, types=types, reserved=reserved)
        )
        outage.succeeded(CLAIM)
        self._slots.lease_table.polled()
        self._accept(claims)
        return len(claims)

    async def _recover_claims(self) -> None:
        """The response to a claim was lost: start the jobs that it may have claimed."""
        if self._response_lost:
            known = {*self._slots.executions, *self._slots.abandoned}
            self._accept(await self._connectivity.call(self._source.recover_claims(known)))
            self._response_lost = False

    def _accept(self, claims: Claims) -> None:
        """Buffer the jobs and start as many as there are free slots."""
        slots, now = self._slots, self._clock.monotonic()
        runs = [slots.add(lease, policy, now) for lease, policy in claims]
        fragile = [run for run in runs if run.fragile]
        slots.buffer.extend([run for run in runs if not run.fragile] if fragile else runs)
        self._start_fragile(fragile, len(claims))
        if slots.stopping.is_set():
            self._executor.release_buffer()
        self._executor.start_buffered()

    def _start_fragile(self, fragile: list[Execution], claimed: int) -> None:
        """They are started now or released."""
        slots, surplus, delayed = self._slots, 0, []
        released: list[Execution] = []
        for run in fragile:
            if not slots.room_for(run) or slots.stopping.is_set():
                surplus += 1
                released.append(run)
            elif slots.can_start(run):
                self._executor.start(run)
            elif run.handler.isolation is Isolation.PROCESS:
                released.append(run)
            else:
                delayed.append(run)
        slots.prefetch.claimed(claimed, back=surplus)
        self._executor.release(released)
        self._executor.release(
            delayed, delay_seconds=BUFFERED_SECONDS_MAX
        )  # this worker would claim them again at once

    async def _until_hint(self, types: list[str], *, reserved: bool = False) -> None:
        """Or until the worker stops, or more types than these can start."""
        slots = self._slots
        waiting: asyncio.Future[Any] = self._wait(types, reserved)
        others: list[asyncio.Future[Any]] = [asyncio.ensure_future(slots.stopping.wait())]
        if reserved:
            others.append(asyncio.ensure_future(self._until_wanted()))
        elif types != slots.types:
            others.append(asyncio.ensure_future(slots.child_free.wait()))
        try:
            while not any(other.done() for other in others):
                await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    slots.lease_table.polled()
                    if waiting.result() or not self.enabled:
                        return
                    waiting = self._wait(types, reserved)
        finally:
            for task in (waiting, *others):
                task.cancel()

    def _wait(self, types: list[str], reserved: bool) -> asyncio.Future[bool]:
        return asyncio.ensure_future(self._source.wait(WAIT_SECONDS, self._queues, types, reserved=reserved))

    async def _until_wanted(self) -> None:
        """Until jobs of every type can be claimed."""
        slots = self._slots
        while not slots.wanted():
            slots.capacity_changed.clear()
            await slots.capacity_changed.wait()

    async def _until_enabled(self) -> None:
        """A disabled worker finishes what it holds. Claiming nothing does not count as unresponsive."""
        self.enabled = False
        while not self.enabled and not await self._clock.within(self._slots.stopping, TICK_SECONDS):
            self._slots.lease_table.polled()
