"""Signatures of webhooks that extensions receive, against an independent implementation of Standard Webhooks."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from holdfast.errors import Invalid
from holdfast.signatures import sign, verify

KEY = bytes(range(32))
SECRET = "whsec_" + b64encode(KEY).decode()
OTHER = "a secret that is plain text"
BODY = '{"id":"1","text":"Übersetzung"}'.encode()
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def signed(secret: str | bytes = SECRET, body: bytes = BODY, at: datetime = NOW, name: str = "msg_1") -> dict[str, str]:
    """The headers that the other implementation makes."""
    signature = Webhook(secret).sign(name, at, body.decode())
    return {"webhook-id": name, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def test_signatures_of_an_independent_implementation_are_valid() -> None:
    assert verify(SECRET, signed(), BODY, NOW)
    assert verify(SECRET.rstrip("="), signed(), BODY, NOW)
    assert verify(OTHER, signed(OTHER.encode()), BODY, NOW)


def test_an_independent_implementation_makes_the_same_signature() -> None:
    assert sign(SECRET, "msg_1", int(NOW.timestamp()), BODY) == signed()["webhook-signature"]
    assert sign(OTHER, "msg_1", int(NOW.timestamp()), BODY) == signed(OTHER.encode())["webhook-signature"]


def test_one_of_several_signatures_is_enough() -> None:
    signature = signed()["webhook-signature"]
    for text in (f"v1,AAAA {signature}", f"{signature} v1,AAAA", f"v1a,xyz {signature} garbage", f" {signature}"):
        assert verify(SECRET, signed() | {"webhook-signature": text}, BODY, NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "msg_2"},
        {"webhook-id": ""},
        {"webhook-id": "ü"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": str(int(NOW.timestamp()) + 1)},
        {"webhook-timestamp": f"{NOW.timestamp()}"},
        {"webhook-timestamp": f"-{int(NOW.timestamp())}"},
        {"webhook-timestamp": "٣" * 10},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1"},
        {"webhook-signature": "ü \ud800"},
        {"webhook-signature": signed(OTHER.encode())["webhook-signature"]},
        {"webhook-signature": signed()["webhook-signature"].replace("v1,", "v2,")},
        {"webhook-signature": signed()["webhook-signature"].removeprefix("v1,")},
        {"webhook-signature": signed()["webhook-signature"].rstrip("=")},
    ],
    ids=ascii,
)
def test_changed_headers_are_invalid(changed: dict[str, str]) -> None:
    assert not verify(SECRET, signed() | changed, BODY, NOW)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_invalid(missing: str) -> None:
    assert not verify(SECRET, {name: text for name, text in signed().items() if name != missing}, BODY, NOW)


@pytest.mark.parametrize("body", [b"", BODY + b" ", BODY[:-1], b"\xff\x00"])
def test_another_body_is_invalid(body: bytes) -> None:
    assert not verify(SECRET, signed(), body, NOW)


@pytest.mark.parametrize(("seconds", "valid"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_the_timestamp_is_at_most_five_minutes_away(seconds: float, valid: bool) -> None:
    assert verify(SECRET, signed(), BODY, NOW + timedelta(seconds=seconds)) is valid


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_?", "whsec_AAAA", "whsec_ü", "too short", "whsec_A" + "===" * 9]
)
def test_a_weak_secret_is_an_error(secret: str) -> None:
    """It is not a secret under which nothing, or anything, is valid."""
    for call in (lambda: sign(secret, "1", 1, BODY), lambda: verify(secret, signed(), BODY, NOW)):
        with pytest.raises(Invalid) as refused:
            call()
        assert refused.value.code == "invalid_signing_secret"
        assert "AAAA" not in refused.value.message
