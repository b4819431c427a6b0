"""A worker: who it is, what it can do, whether an operator lets it, whether it is alive."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.json import decode_or_none


class Liveness(StrEnum):
    ACTIVE = "active"  # registered or heard from, says nothing about its slots
    IDLE = "idle"
    BUSY = "busy"
    OFFLINE = "offline"


class Worker(msgspec.Struct, frozen=True):
    """`enabled` is the operator's word, `liveness` what the heartbeats say; neither ever writes the other."""

    id: str
    name: str | None
    kind: str
    tenants: Any
    capabilities: Any
    offers: Any
    metadata: Any
    enabled: bool
    liveness: Liveness
    slots: int | None
    registered_at: datetime
    last_heartbeat_at: datetime | None
    heartbeat_seconds: float
    offline_seconds: float

    @classmethod
    def from_row(cls, row: Any) -> Worker:
        values = {name: row[name] for name in cls.__struct_fields__}
        for name in ("tenants", "capabilities", "offers", "metadata"):
            values[name] = decode_or_none(values[name])
        values["enabled"] = bool(values["enabled"])
        values["liveness"] = Liveness(values["liveness"])
        return cls(**values)

    @property
    def status(self) -> str:
        """One word for people: disabled wins over whatever the heartbeats say."""
        return self.liveness.value if self.enabled else "disabled"

    @property
    def job_types(self) -> list[str] | None:
        """Those it says it runs; None: it does not say, and may run any."""
        types = self.metadata.get("jobTypes") if isinstance(self.metadata, dict) else None
        return types if isinstance(types, list) else None


WORKER_COLUMNS = Worker.__struct_fields__
