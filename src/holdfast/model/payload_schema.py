"""Validates payloads against the JSON Schema of the job type, also in servers without the app."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from holdfast.errors import Invalid

SCHEMA_BYTES_MAX = 256 * 1024
ERRORS_MAX = 5  # in one message

Check = Callable[[Any], None]  # raises Invalid

_MISSING = re.compile(r'^"(?P<name>.+)" is a required property$')
_EXTRA = re.compile(r"\('(?P<name>.+?)' (was|were) unexpected\)$|\('(?P<first>.+?)',")


def check_of(job_type: str, schema: dict[str, Any]) -> Check:
    """Compiles the schema; a check takes a few microseconds."""
    import jsonschema_rs  # takes 20 ms, and most processes do not need it

    try:
        # Values may be secret: a message names only the field and what it must be.
        validator = jsonschema_rs.validator_for(schema, mask="the value", retriever=_retrieve_nothing)
    except ValueError as error:
        raise Invalid(f"job type {job_type}: its schema is not a JSON Schema: {error}", code="invalid_schema") from None

    def check(payload: Any) -> None:
        if validator.is_valid(payload):
            return
        try:
            errors = [*islice(validator.iter_errors(payload), ERRORS_MAX)]
        except ValueError:
            raise _refusal(job_type, [("", "it is nested too deeply")]) from None
        raise _refusal(job_type, [_told(error.message, list(error.instance_path)) for error in errors])

    return check


def _refusal(job_type: str, faults: Sequence[tuple[str, str]]) -> Invalid:
    """One error for all problems; `field` is the first."""
    texts = [f"`{field}`: {message}" if field else message for field, message in faults]
    return Invalid(f"payload of {job_type}: {'; '.join(texts)}", code="invalid_payload", field=faults[0][0] or None)


def _told(message: str, path: Sequence[str | int]) -> tuple[str, str]:
    """The field of an error, and its message."""
    named = _MISSING.search(message) or _EXTRA.search(message)
    name = next((found for found in named.groupdict().values() if found), None) if named else None
    return _shown([*path, name] if name is not None else path), message


def _shown(path: Sequence[str | int]) -> str:
    """`orders[0].price`"""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _retrieve_nothing(address: str) -> Any:
    """A schema may refer only to itself: no network or disk access."""
    raise ValueError(f"a schema must not refer to {address}")
