"""Signs webhook requests as Standard Webhooks defines it, so that receivers can verify sender, body and time."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

from holdfast.model.webhook import SECRET_PREFIX


def headers(message_id: str, now: datetime, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """The id is the same at each attempt; the timestamp is that of the attempt."""
    seconds = str(int(now.timestamp()))
    fields = {"webhook-id": message_id, "webhook-timestamp": seconds}
    signed = f"{message_id}.{seconds}.".encode() + body
    signatures = [_signature(secret, signed) for secret in secrets]
    return fields | ({"webhook-signature": " ".join(signatures)} if signatures else {})


def _signature(secret: str, signed: bytes) -> str:
    key = b64decode(secret.removeprefix(SECRET_PREFIX))
    return "v1," + b64encode(hmac.digest(key, signed, sha256)).decode()
