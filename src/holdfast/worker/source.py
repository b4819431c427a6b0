"""Where a worker's jobs come from and where its reports go: the database itself, or a server over HTTP."""

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

Answers = Sequence[Settled | HoldfastError]
Claims = list[tuple[Lease, Policy]]  # each lease with the clocks its job was created under


class Source(Protocol):
    """Every call is about the one worker and instance that the source was opened for.

    A call that could not reach the database raises `StoreError` and may be repeated: every report carries its token.
    """

    async def claim(self, limit: int, *, queues: list[str] | None, types: list[str] | None) -> Claims: ...

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat: ...

    async def stops(self, leases: list[HeldLease]) -> list[HeldLease]:
        """Which of these should not go on: canceled, or not ours any more. A read; a beat then tells which is which."""
        ...

    async def progress(self, reports: list[Progress]) -> Sequence[Advanced | HoldfastError]: ...

    async def complete(self, items: list[Complete]) -> Answers: ...

    async def fail(self, items: list[Fail]) -> Answers: ...

    async def release(self, items: list[Release]) -> Answers: ...

    async def reject(self, items: list[Rejection]) -> Answers: ...

    async def parts(self, job_id: str) -> list[Part]: ...

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        """End the waiting work of another job."""
        ...

    async def recover_claims(self, known: set[str]) -> Claims:
        """What the database thinks this instance holds, but for those tokens: asked when a claim's answer was lost.

        Their leases are renewed, and as good as those of a claim.
        """
        ...

    async def wait(self, seconds: float, queues: list[str] | None = None, types: list[str] | None = None) -> bool:
        """True as soon as there may be something to claim; False when the time is up."""
        ...

    async def close(self) -> None: ...
