"""The two kinds of things that go over the wire, and the words that they share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

Time = Annotated[datetime, Meta(tz=True)]
# What follows is only told: the engine refuses the rest itself, each with a code of its own.
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 200})]
Key = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]
Priority = Annotated[int, Meta(extra_json_schema={"minimum": -100, "maximum": 100})]
Attempts = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})]
Seconds = Annotated[float, Meta(extra_json_schema={"minimum": 0})]


def camel(name: str) -> str:
    """`lease_seconds` is `leaseSeconds` over HTTP."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a client sends. An unknown field is refused: it may be a misspelt one."""


class ResponseBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a server sends; what has nothing to say is left out."""
