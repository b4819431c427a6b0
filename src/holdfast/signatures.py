"""Signatures of webhooks as Standard Webhooks defines them: receivers verify sender, body and time."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

from holdfast.errors import Invalid

SECRET_PREFIX = "whsec_"  # noqa: S105  the prefix of secrets in Standard Webhooks
KEY_BYTES_MIN = 16
TOLERANCE_SECONDS = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")

__all__ = ["sign", "verify"]


def sign(secret: str, webhook_id: str, timestamp: int, body: bytes) -> str:
    """One signature of the header `webhook-signature`. The secret is `whsec_` and base64, or other text."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(_key(secret), signed, sha256)).decode()


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Whether one of the signatures is valid, and the timestamp at most five minutes away. Names of headers are in
    lower case, or `headers` ignores case."""
    webhook_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not webhook_id.isascii() or not webhook_id or not _TIMESTAMP.fullmatch(timestamp):
        return False
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    wanted = sign(secret, webhook_id, int(timestamp), body).encode()
    given = headers.get("webhook-signature", "").encode(errors="replace").split(b" ")
    return any(hmac.compare_digest(wanted, each) for each in given)


def _key(secret: str) -> bytes:
    key = _decoded(secret.removeprefix(SECRET_PREFIX)) if secret.startswith(SECRET_PREFIX) else secret.encode()
    if len(key) < KEY_BYTES_MIN:
        reason = f"a webhook secret must have {KEY_BYTES_MIN} bytes and more, after {SECRET_PREFIX} in base64"
        raise Invalid(reason, code="invalid_signing_secret")
    return key


def _decoded(text: str) -> bytes:
    """Nothing if it is not base64; padding may be missing."""
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return b""
