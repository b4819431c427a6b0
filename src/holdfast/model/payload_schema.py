"""The JSON Schema of a job type's payload: kept with the type, so that a server without the app can check payloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from holdfast.errors import Invalid

SCHEMA_BYTES_MAX = 256 * 1024
ERRORS_MAX = 5  # that are told of one payload

Check = Callable[[Any], None]  # raises Invalid

_MISSING = re.compile(r'^"(?P<name>.+)" is a required property$')
_EXTRA = re.compile(r"\('(?P<name>.+?)' (was|were) unexpected\)$|\('(?P<first>.+?)',")


def check_of(job_type: str, schema: dict[str, Any]) -> Check:
    """Compiled once, and then a few microseconds for each payload."""
    import jsonschema_rs  # 20 ms, which most processes never need

    try:
        # Values of a payload may be secret: a message names the field and what it must be.
        validator = jsonschema_rs.validator_for(schema, mask="the value", retriever=_retrieve_nothing)
    except ValueError as error:
        raise Invalid(f"job type {job_type}: its schema is no JSON Schema: {error}", code="invalid_schema") from None

    def check(payload: Any) -> None:
        if not validator.is_valid(payload):
            errors = islice(validator.iter_errors(payload), ERRORS_MAX)
            raise _refusal(job_type, [_told(error.message, list(error.instance_path)) for error in errors])

    return check


def _refusal(job_type: str, told: Sequence[tuple[str, str]]) -> Invalid:
    """All that is wrong in one answer; `field` is the first of them."""
    texts = [f"`{field}`: {message}" if field else message for field, message in told]
    return Invalid(f"payload of {job_type}: {'; '.join(texts)}", code="invalid_payload", field=told[0][0] or None)


def _told(message: str, path: Sequence[str | int]) -> tuple[str, str]:
    """The field that an error is about, and the error."""
    named = _MISSING.search(message) or _EXTRA.search(message)
    name = next((found for found in named.groupdict().values() if found), None) if named else None
    return _shown([*path, name] if name is not None else path), message


def _shown(path: Sequence[str | int]) -> str:
    """`orders[0].price`"""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _retrieve_nothing(address: str) -> Any:
    """A schema may refer to itself only: checking a payload asks nothing of the network or the disk."""
    raise ValueError(f"a schema must not refer to {address}")
