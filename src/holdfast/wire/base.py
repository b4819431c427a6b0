"""Base classes and annotated types of request and response bodies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

Time = Annotated[datetime, Meta(tz=True)]
# These limits are only documented in the schema; the engine checks them and answers `invalid_field`.
Key = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]
Priority = Annotated[int, Meta(extra_json_schema={"minimum": -100, "maximum": 100})]
Attempts = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})]


def camel(name: str) -> str:
    """`lease_seconds` is `leaseSeconds` over HTTP."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A request body or query. Unknown fields are rejected: they may be typing errors."""


class ResponseBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """A response body; fields with their default value are left out."""

    @classmethod
    def of(cls, source: object, **own: Any) -> Self:
        """With `own` fields; every other field has the value of the attribute of `source` with the same name."""
        return cls(**{name: getattr(source, name) for name in cls.__struct_fields__ if name not in own}, **own)
