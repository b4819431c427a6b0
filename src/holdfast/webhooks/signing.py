"""Signs webhook requests as Standard Webhooks defines it, so that receivers can verify sender, body and time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from holdfast.signatures import sign


def headers(message_id: str, now: datetime, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """The id is the same at each attempt; the timestamp is that of the attempt."""
    seconds = int(now.timestamp())
    fields = {"webhook-id": message_id, "webhook-timestamp": str(seconds)}
    signatures = [sign(secret, message_id, seconds, body) for secret in secrets]
    return fields | ({"webhook-signature": " ".join(signatures)} if signatures else {})
