"""A worker's source that uses a server over HTTP, for workers that cannot reach the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec

from holdfast import wire
from holdfast.client import codec
from holdfast.client.client import Client
from holdfast.client.problems import refused, unreadable
from holdfast.clock import Clock
from holdfast.errors import Forbidden, HoldfastError, LeaseLost, StoreUnavailable, TooMany, Unauthorized
from holdfast.ids import Ids
from holdfast.lifecycle import Policy
from holdfast.model import Lease, Liveness, Part
from holdfast.model.reports import Advanced, Beat, Fleet, HeldLease, Progress, Release, Settled, Withdrawal, Withdrawn
from holdfast.worker.source import VERBS, Answers, Claims, Names, Report

CLAIM_MAX = 100  # in one request
REPORTS_MAX, REPORTS_BYTES_MAX = 1000, 900_000  # in one body, which may be 1 MiB
WAIT_SECONDS_MAX = 30.0
RESERVED_SECONDS = 1.0  # between two claims for the reserved slot
EARLY_SECONDS = 0.5  # to wait after an empty response that came early
CLOSE_SECONDS = 3.0
FLEET = Fleet(live=2)  # a server does not tell: there may be others
PARTS_MAX = 10_000  # more jobs than a worker can hold
POLICIES_MAX = 10_000

ClaimCall = Callable[..., Awaitable[list[wire.ClaimedJob]]]


class HttpSource:
    """A claim has a request id: one whose response was lost is repeated under the same id.

    The server has no request that waits without claiming. So `wait` claims, and the next `claim` returns those jobs.
    """

    def __init__(self, client: Client, clock: Clock, ids: Ids, *, instance: str | None = None) -> None:
        self._client, self._clock, self._ids = client, clock, ids
        self.instance = instance or ids.token()
        self._wanted = 1
        self._plenty = False  # the last claim got as many as it wanted
        self._claimed: list[wire.ClaimedJob] = []
        self._pending: dict[str, ClaimCall] = {}  # claims whose response was lost, by request id
        self._releasing = set[asyncio.Task[None]]()
        self._parts: dict[str, list[Part]] = {}
        self._policies: dict[tuple[Any, ...], Policy] = {}

    # -- claiming ---------------------------------------------------------------------------------------------

    async def claim(self, limit: int, *, queues: Names, types: Names, reserved: bool = False) -> Claims:
        self._wanted = min(limit, CLAIM_MAX)
        while self._pending:
            jobs = await self._repeat(*self._pending.popitem())
            self._claimed += jobs
        if not self._claimed:
            await self._fetch(limit, queues, types)
        claimed, self._claimed = self._claimed, []
        return [self._accept(job) for job in claimed]

    async def _fetch(self, limit: int, queues: Names, types: Names) -> None:
        """One request at first; several at once while there are enough jobs."""
        sizes = [min(CLAIM_MAX, limit - start) for start in range(0, limit, CLAIM_MAX)]
        first = len(sizes) if self._plenty else 1
        for portion in filter(None, (sizes[:first], sizes[first:])):
            asking = (self._ask(size, queues, types) for size in portion)
            answers = await asyncio.gather(*asking, return_exceptions=True)
            failures = [answer for answer in answers if isinstance(answer, BaseException)]
            got = [job for answer in answers if not isinstance(answer, BaseException) for job in answer]
            self._claimed += got
            self._plenty = len(got) == sum(portion)
            if failures and not self._claimed:
                raise failures[0]
            if not self._plenty:
                return

    async def _ask(self, limit: int, queues: Names, types: Names, wait: float = 0) -> list[wire.ClaimedJob]:
        request = self._ids.token()
        call = partial(
            self._client.claim,
            queues=queues,
            job_types=types,
            limit=limit,
            request_id=request,
            instance_id=self.instance,
        )
        return await self._repeat(request, call, wait_seconds=wait)

    async def _repeat(self, request: str, call: ClaimCall, **otherwise: Any) -> list[wire.ClaimedJob]:
        """It becomes pending if its response is lost, also because the call is canceled. The call that takes it from
        `_pending` repeats it alone."""
        try:
            with _translated():
                return await call(**otherwise)
        except BaseException:
            self._pending[request] = call
            raise

    async def wait(self, seconds: float, queues: Names = None, types: Names = None, *, reserved: bool = False) -> bool:
        if reserved:  # a long poll would have to be canceled when another slot becomes free
            await self._clock.sleep(min(seconds, RESERVED_SECONDS))
            return True
        seconds, begun = min(seconds, WAIT_SECONDS_MAX), self._clock.monotonic()
        try:
            jobs = await self._ask(self._wanted, queues, types, seconds)
        except asyncio.CancelledError:  # perhaps the worker shuts down: release what was just claimed
            self._start_release()
            raise
        self._claimed += jobs
        left = seconds - (self._clock.monotonic() - begun)
        if not self._claimed and left > 0:
            await self._clock.sleep(min(left, EARLY_SECONDS))
        return bool(self._claimed)

    def _accept(self, job: wire.ClaimedJob) -> tuple[Lease, Policy]:
        if job.parts:
            self._parts[job.job_id] = [codec.part_of(part) for part in job.parts]
            while len(self._parts) > PARTS_MAX:
                del self._parts[next(iter(self._parts))]
        return codec.lease_of(job), self._policy(job)

    def _policy(self, job: wire.ClaimedJob) -> Policy:
        clocks = (job.max_lost, *msgspec.structs.astuple(job.clocks))
        if clocks not in self._policies:
            if len(self._policies) >= POLICIES_MAX:  # jobs with their own policies are unbounded
                self._policies.clear()
            self._policies[clocks] = codec.policy_of(job)
        return self._policies[clocks]

    async def recover_claims(self, known: set[str]) -> Claims:
        """Nothing to do: the next claim repeats the request whose response was lost."""
        return []

    async def parts(self, job_id: str) -> list[Part]:
        """As they were at the claim; the execution knows its own changes since."""
        return self._parts.get(job_id, [])

    # -- heartbeats -------------------------------------------------------------------------------------------

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat:
        with _translated():
            answer = await self._client.heartbeat(
                leases,
                status=liveness.value,
                instance_id=self.instance,
                slots=slots,
            )
        return Beat(answer.lost, answer.cancel, not answer.drain, answer.lease_expires_at, FLEET)

    async def stop_requests(self, leases: list[HeldLease]) -> list[HeldLease]:
        """Not asked between heartbeats, which are more frequent over HTTP."""
        return []

    # -- reports ----------------------------------------------------------------------------------------------

    async def progress(self, reports: list[Progress]) -> Sequence[Advanced | HoldfastError]:
        answers = await self._report("progress", reports)
        return [refused(answer) if answer.code else codec.advanced_of(answer) for answer in answers]

    async def settle(self, reports: Sequence[Report]) -> Answers:
        answers = await self._report(VERBS[type(reports[0])], reports)
        settled: list[Settled | HoldfastError] = [
            refused(answer) if answer.code else codec.settled_of(answer) for answer in answers
        ]
        for report, answer in zip(reports, settled, strict=True):
            if isinstance(answer, Settled | LeaseLost):
                self._parts.pop(report.id, None)
        return settled

    async def _report(self, verb: str, reports: Sequence[msgspec.Struct]) -> list[wire.ReportResult]:
        answers: list[wire.ReportResult] = []
        for portion in codec.packed(reports, most=REPORTS_MAX, most_bytes=REPORTS_BYTES_MAX):
            with _translated():
                answer = await self._client.report(wire.ReportsBody(**{verb: portion}))
            told: list[wire.ReportResult] = getattr(answer, verb)
            if len(told) != len(portion):
                raise unreadable(self._client.url)
            answers += told
        return answers

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        with _translated():
            answer = await self._client.withdraw(
                asked.id, asked.token, asked.target, reason=asked.reason, message=asked.message
            )
        return codec.withdrawn_of(answer)

    # -- closing ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*self._releasing)
                await self._release_pending()
                await self._release(self._claimed)
        await self._client.close()

    def _start_release(self) -> None:
        task = asyncio.create_task(self._release_pending())
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release_pending(self) -> None:
        with suppress(HoldfastError):  # then it stays pending
            while self._pending:
                # The server may never have received it: then it claims no more than one job now.
                await self._release(await self._repeat(*self._pending.popitem(), limit=1))

    async def _release(self, claimed: list[wire.ClaimedJob]) -> None:
        """Release what was claimed and not handed to the worker."""
        if claimed:
            await self.settle([Release(job.job_id, job.lease_token) for job in claimed])


@contextmanager
def _translated() -> Iterator[None]:
    """A rate limit is treated like an outage; a rejected key ends the worker."""
    try:
        yield
    except TooMany as error:
        raise StoreUnavailable(error.message, code=error.code) from None
    except (Unauthorized, Forbidden) as error:
        raise Unauthorized(f"the server rejected this worker's key: {error.message}", code="worker_not_found") from None
