"""The declaration of a job type, stored in the database so that every process uses the same."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.model.json import encode_object
from holdfast.model.limits import JobLimits
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
    limits: JobLimits = JobLimits()
    schema: str | None = None  # JSON Schema of the payload, as text; None: any JSON object
    needs: list[str] | None = None  # the extensions that have hooks on it

    @property
    def in_order(self) -> JobType:
        """With sorted capabilities, as stored."""
        return msgspec.structs.replace(self, requires=sorted(self.requires), prefers=sorted(self.prefers))

    def check(self) -> None:
        check_name(self.name, "job_type")
        check_name(self.lifecycle, "lifecycle")
        check_name(self.queue, "queue")
        encode_object(self.policy, "policy", max_bytes=POLICY_BYTES_MAX)
        check_names(self.requires, "requires")
        check_names(self.prefers, "prefers")
        self.limits.check(self.name)
        if self.schema is not None:
            _check_schema(self.name, self.schema)


def _check_schema(name: str, schema: str) -> None:
    try:
        msgspec.json.decode(schema, type=dict[str, Any])
    except (msgspec.DecodeError, TypeError) as error:
        raise Invalid(f"job type {name}: its schema is not a JSON object: {error}", code="invalid_schema") from None
    if len(schema) > SCHEMA_BYTES_MAX:
        raise Invalid(
            f"job type {name}: its schema has {len(schema)} characters, the limit is {SCHEMA_BYTES_MAX}",
            code="invalid_schema",
        )
