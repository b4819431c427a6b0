"""What an app declares about a type of job; kept in the database so that every process creates it alike."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.model.json import encode_object
from holdfast.model.names import check_name, check_names
from holdfast.model.payload_schema import SCHEMA_BYTES_MAX

POLICY_BYTES_MAX = 16 * 1024


class JobType(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    lifecycle: str = "default"
    queue: str = "default"
    policy: dict[str, Any] = {}
    requires: list[str] = []
    prefers: list[str] = []
    schema: str | None = None  # of its payload, as JSON text; None: any JSON object will do

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
        if self.schema is not None:
            encode_object(_decoded(self.name, self.schema), "schema", max_bytes=SCHEMA_BYTES_MAX)


def _decoded(name: str, schema: str) -> Any:
    try:
        return msgspec.json.decode(schema)
    except msgspec.DecodeError as error:
        raise Invalid(f"job type {name}: its schema is not JSON: {error}", code="invalid_schema") from None
