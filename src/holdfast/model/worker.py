"""The record of a worker: identity, capabilities, enabled or disabled, liveness."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.json import decode_or_none

LOCAL = "local"  # workers that connect to the database


class Liveness(StrEnum):
    ACTIVE = "active"  # registered or sent a heartbeat, slots unknown
    IDLE = "idle"
    BUSY = "busy"
    OFFLINE = "offline"


class ClaimScope(msgspec.Struct, frozen=True):
    """The job types and queues that a worker claims; None: any."""

    types: list[str] | None = None
    queues: list[str] | None = None
    at: float = 0.0  # Unix time of the last claim

    def covers(self, job_type: str) -> bool:
        return self.types is None or job_type in self.types

    def includes(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


class Holding(msgspec.Struct, frozen=True):
    """The leases of a worker: their number, and the oldest."""

    jobs: int
    oldest: str | None = None


class WorkerRecord(msgspec.Struct, frozen=True):
    """`enabled` is the operator's word, `liveness` what the heartbeats say; neither ever writes the other.

    Where it was asked `with_holding`, `liveness` also goes by the leases, and `current_job_id` is one of them.
    """

    id: str
    name: str | None
    kind: str
    tenants: Any
    capabilities: Any
    offers: Any
    metadata: Any
    claim_scopes: Any
    enabled: bool
    liveness: Liveness
    slots: int | None
    registered_at: datetime
    last_heartbeat_at: datetime | None
    heartbeat_seconds: float
    offline_seconds: float
    current_job_id: str | None = None

    @classmethod
    def from_row(cls, row: Any) -> WorkerRecord:
        values = {name: row[name] for name in WORKER_COLUMNS}
        for name in ("tenants", "capabilities", "offers", "metadata", "claim_scopes"):
            values[name] = decode_or_none(values[name])
        values["enabled"] = bool(values["enabled"])
        values["liveness"] = Liveness(values["liveness"])
        return cls(**values)

    def with_holding(self, holding: Holding | None) -> WorkerRecord:
        """Busy from its claim on and idle from its report on, whatever its last heartbeat said. What one that has never
        claimed says of itself stands."""
        if self.liveness is Liveness.OFFLINE:
            return self
        if holding is not None:
            return msgspec.structs.replace(self, liveness=Liveness.BUSY, current_job_id=holding.oldest)
        claims = bool(self.claim_scopes) or (self.kind == LOCAL and self.liveness is Liveness.BUSY)
        return msgspec.structs.replace(self, liveness=Liveness.IDLE) if claims else self

    @property
    def status(self) -> str:
        """The displayed status: disabled takes precedence over liveness."""
        return self.liveness.value if self.enabled else "disabled"

    @property
    def scopes(self) -> list[ClaimScope]:
        """What it asks for. Processes that share a key may ask for different things.

        Without a claim over HTTP it is what the worker declared when it registered. A worker beside the database that
        declared nothing may take anything; one that comes over HTTP and has not claimed yet takes nothing.
        """
        if self.claim_scopes:
            found = msgspec.convert(self.claim_scopes, list[ClaimScope])
            newest = max(scope.at for scope in found)
            return [scope for scope in found if newest - scope.at <= self.offline_seconds]
        types, queues = self._declared("jobTypes"), self._declared("queues")
        return [ClaimScope(types, queues)] if self.kind == LOCAL or types is not None else []

    @property
    def job_types(self) -> list[str] | None:
        """The job types that it claims; None: any."""
        types = [scope.types for scope in self.scopes]
        return None if None in types else sorted({name for some in types for name in some or ()})

    def _declared(self, name: str) -> list[str] | None:
        found = self.metadata.get(name) if isinstance(self.metadata, dict) else None
        return found if isinstance(found, list) else None


WORKER_COLUMNS = WorkerRecord.__struct_fields__[:-1]  # without the current job
