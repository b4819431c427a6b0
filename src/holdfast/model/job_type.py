"""What an app declares about a type of job; kept in the database so that every process creates it alike."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.names import check_name, check_names


class JobType(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    lifecycle: str = "default"
    queue: str = "default"
    policy: dict[str, Any] = {}
    requires: list[str] = []
    prefers: list[str] = []

    def check(self) -> None:
        check_name(self.name, "job type")
        check_name(self.queue, "queue")
        check_names(self.requires, "capability")
        check_names(self.prefers, "capability")
