"""Signatures that others can check (SEC-29)."""

from base64 import b64encode
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.model.webhook import SECRET_BITS, secret_of
from holdfast.webhooks.signing import headers


def test_a_known_message_has_a_known_signature() -> None:
    """By hand: printf '%s' 'msg.1700000000.{}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:6b6b..."""
    secret = "whsec_" + b64encode(b"k" * 32).decode()
    said = headers("msg", datetime.fromtimestamp(1_700_000_000.9, UTC), b"{}", [secret])
    assert said == {
        "webhook-id": "msg",
        "webhook-timestamp": "1700000000",
        "webhook-signature": "v1,XTlAHnC58BIsKHxU9T+SqEv4HWj5J4xjqEDIL9nQMm0=",
    }


def test_an_independent_implementation_verifies_each_active_secret() -> None:
    old, new = (secret_of(Ids().bits(SECRET_BITS)) for _ in range(2))
    body = '{"type":"job.completed","data":{"jobType":"Übersetzung"}}'.encode()
    said = headers("0199", Clock().now(), body, [new, old])
    for secret in (old, new):
        assert Webhook(secret).verify(body, said)["type"] == "job.completed"


def test_a_modified_message_fails_verification() -> None:
    secret, stranger = (secret_of(Ids().bits(SECRET_BITS)) for _ in range(2))
    said = headers("0199", Clock().now(), b"{}", [secret])
    for key, body, heard in (
        (secret, b"{ }", said),
        (stranger, b"{}", said),
        (secret, b"{}", said | {"webhook-id": "0198"}),
        (secret, b"{}", said | {"webhook-timestamp": str(int(said["webhook-timestamp"]) + 1)}),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(key).verify(body, heard)


def test_without_a_secret_there_is_no_signature() -> None:
    assert "webhook-signature" not in headers("1", Clock().now(), b"{}", [])
