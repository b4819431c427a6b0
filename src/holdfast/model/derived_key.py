"""Idempotency keys derived from the subject and the content of a request, so that a double click creates one job."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Any

import msgspec

from holdfast.errors import InvalidField
from holdfast.lifecycle import Idempotency
from holdfast.model.job import PAYLOAD_BYTES_MAX, NewJob
from holdfast.model.json import encode
from holdfast.model.names import quoted

WITHIN_SECONDS = 120.0  # the current minute and the one before
DERIVED = "derived-"  # begins these keys, and none that a client sends over HTTP


def derived_key(subject: str, *request: Any) -> str:
    """The same for equivalent requests: the order of keys, white space and Unicode normalization do not
    matter.

    `subject` is the user or account. `request` is any JSON: a prompt and its parameters, say.
    """
    if not isinstance(subject, str) or not subject:
        raise InvalidField(f"a derived key needs a subject, as text, got {quoted(subject)}", field="idempotency_key")
    if not request:
        raise InvalidField("a derived key needs a request beside its subject", field="idempotency_key")
    encode([*request], "payload", max_bytes=PAYLOAD_BYTES_MAX)
    asked = msgspec.json.encode([subject, [_normal(part) for part in request]], order="sorted")
    return f"{DERIVED}{hashlib.sha256(asked).hexdigest()}"


def with_derived_key(job: NewJob, subject: str, *request: Any, within_seconds: float = WITHIN_SECONDS) -> NewJob:
    """A job whose key is its own for so long, unless it fails before. A key that was given explicitly stays."""
    if job.idempotency_key is not None:
        return job
    policy = {"idempotency": Idempotency.WINDOW_UNTIL_FAILED.value, "idempotency_window_seconds": within_seconds}
    return msgspec.structs.replace(
        job,
        idempotency_key=derived_key(subject, job.type, *request),
        key_is_derived=True,
        policy={**policy, **(job.policy or {})},
    )


def check_key_of_client(key: str | None) -> None:
    """A client that can guess the request of another user must not use its key first."""
    if key is not None and key.startswith(DERIVED):
        raise InvalidField(f"idempotency keys that begin with {DERIVED!r} are reserved", field="idempotency_key")


def _normal(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFC", value).split())
    if isinstance(value, dict):
        return {name: _normal(item) for name, item in value.items()}
    return [_normal(item) for item in value] if isinstance(value, list) else value
