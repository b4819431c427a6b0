"""What an app declares about a type of job; kept in the database so that every process creates it alike."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.json import encode_object
from holdfast.model.names import check_name, check_names

POLICY_BYTES_MAX = 16 * 1024


class JobType(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    lifecycle: str = "default"
    queue: str = "default"
    policy: dict[str, Any] = {}
    requires: list[str] = []
    prefers: list[str] = []

    @property
    def in_order(self) -> JobType:
        """As it is kept: the order in which capabilities were named says nothing."""
        return msgspec.structs.replace(self, requires=sorted(self.requires), prefers=sorted(self.prefers))

    def check(self) -> None:
        check_name(self.name, "job type")
        check_name(self.lifecycle, "lifecycle")
        check_name(self.queue, "queue")
        encode_object(self.policy, "policy", max_bytes=POLICY_BYTES_MAX)
        check_names(self.requires, "capability")
        check_names(self.prefers, "capability")
