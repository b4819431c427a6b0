"""`Source`: where a worker claims jobs and sends its reports. It is the database itself, or a server over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.lifecycle import Policy
from holdfast.model import Lease, Liveness, Part
from holdfast.model.reports import (
    Advanced,
    Beat,
    Complete,
    Fail,
    HeldLease,
    Progress,
    Rejection,
    Release,
    Settled,
    Withdrawal,
    Withdrawn,
)

Report = Complete | Fail | Release | Rejection  # how an execution ended
VERBS: dict[type[Report], str] = {Complete: "complete", Fail: "fail", Release: "release", Rejection: "reject"}
Answers = Sequence[Settled | HoldfastError]
Claims = list[tuple[Lease, Policy]]  # each lease with the policy of its job
Names = list[str] | None  # of queues or job types; None: all


class Source(Protocol):
    """Opened for one worker and one instance of it.

    A call that could not reach the database raises `StoreError` and can be retried: every report carries its token.
    """

    async def claim(self, limit: int, *, queues: Names, types: Names, reserved: bool = False) -> Claims:
        """`reserved`: for the reserved slot, while no other slot is free. Hints about other jobs are left to workers
        that can start them."""
        ...

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat: ...

    async def stop_requests(self, leases: list[HeldLease]) -> list[HeldLease]:
        """Which of these are canceled or lost. A read; the next heartbeat tells which is which."""
        ...

    async def progress(self, reports: list[Progress]) -> Sequence[Advanced | HoldfastError]: ...

    async def settle(self, reports: Sequence[Report]) -> Answers:
        """Report how executions ended: at least one, and all of these in the same way."""
        ...

    async def parts(self, job_id: str) -> list[Part]: ...

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        """End another job that waits to run."""
        ...

    async def recover_claims(self, known: set[str]) -> Claims:
        """The leases of this instance, except those with a known token: for a claim whose response was lost.

        They are renewed, as if they had just been claimed.
        """
        ...

    async def wait(self, seconds: float, queues: Names = None, types: Names = None, *, reserved: bool = False) -> bool:
        """True as soon as there may be a job to claim; False after `seconds`. `reserved`: as for `claim`."""
        ...

    async def close(self) -> None: ...
