"""Signatures as Standard Webhooks has them: the receiver knows who sent it, that it is whole, and that it is fresh."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

from holdfast.model.webhook import SECRET_PREFIX


def headers(message_id: str, now: datetime, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """The id is the message's, the same at each try; the time is the try's."""
    seconds = str(int(now.timestamp()))
    said = {"webhook-id": message_id, "webhook-timestamp": seconds}
    signed = f"{message_id}.{seconds}.".encode() + body
    signatures = [_signature(secret, signed) for secret in secrets]
    return said | ({"webhook-signature": " ".join(signatures)} if signatures else {})


def _signature(secret: str, signed: bytes) -> str:
    key = b64decode(secret.removeprefix(SECRET_PREFIX))
    return "v1," + b64encode(hmac.digest(key, signed, sha256)).decode()
