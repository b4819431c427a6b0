"""Secrets do not get through, whatever they are wrapped in; what is none stays readable (SEC-39)."""

import time

import pytest

from holdfast import redaction
from holdfast.model.key import Kind, text_of
from holdfast.redaction import CHARS_MAX, HIDDEN, know, redacted, redacted_end, redacted_value
from holdfast.settings import Settings, secrets_in
from holdfast.signatures import SECRET_PREFIX

S = "s3cr3t-Canary.42"
KEY = text_of(Kind.CLIENT, "0123456789abcdef", "ab" * 32)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", redaction._Known())


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {S}",
        f"Authorization: Basic {S}",
        f"{{'authorization': 'Bearer {S}', 'x': 'y'}}",
        f'{{"Authorization":"{S}"}}',
        f"[(b'authorization', b'Bearer {S}')]",
        f"x-admin-secret: {S}",
        f"{{'X-Admin-Secret': '{S}'}}",
        f"cookie: session={S}; other={S}",
        f"Set-Cookie: a={S}; HttpOnly",
        f"the token was Bearer {S} today",
        f"postgresql://user:{S}@db.example.com/jobs",
        f"redis://:{S}@cache:6379/0",
        f"rediss://default:{S}@a:1,b:2",
        f"nats://{S}@nats:4222",
        f"nats://a:{S}@n1:4222,nats://b:{S}@n2:4222",
        f"cannot connect to 'postgresql://u:{S}@h/d?sslmode=require': no route",
        f"postgresql://h/d?user=u&password={S}&x=y",
        f"host=db user=u password={S} dbname=d",
        f"password='{S}'",
        f'{{"leaseToken": "{S}"}}',
        f"HOLDFAST_ADMIN_SECRET={S}",
        f"api_key={S}",
        f"{{'X-Api-Key': '{S}'}}",
        f"{SECRET_PREFIX}{S}",
    ],
)
def test_secrets_are_redacted(text: str) -> None:
    assert S not in redacted(text)
    assert "s3cr3t" not in redacted(text)
    assert HIDDEN in redacted(text)


def test_a_key_is_redacted_to_its_id() -> None:
    for text in (KEY, f"the key {KEY!r} is not known", KEY[:60]):
        assert "abab" not in redacted(text)
        assert "holdfast_client_0123456789abcdef_***" in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "claim: queued -> running",
        "ready: http://127.0.0.1:8080, API documentation at http://127.0.0.1:8080/docs",
        "HOLDFAST_ADMIN_SECRET is not set; put a long random text into it, or its path into HOLDFAST_ADMIN_SECRET_FILE",
        "HOLDFAST_WORKER_KEY_FILE: cannot read /run/key: No such file or directory",
        "job 01a1df6d-77d7-7c8f-b329-06f939e6b00a: its outcome was rejected: the token is not current",
        "cannot connect to PostgreSQL at db.example.com:5432",
        "postgresql://user@db.example.com/jobs?sslmode=require",
        "bearer of bad news",
        "",
    ],
)
def test_other_text_is_not_redacted(text: str) -> None:
    if text.startswith("bearer"):
        assert redacted(text) == "bearer *** bad news", "the price of hiding what may be one"
    else:
        assert redacted(text) == text


def test_values_of_secret_settings_are_redacted_everywhere() -> None:
    settings = Settings(
        database_url="postgresql://u:p%40ssword-1@h/d",
        redis_url="redis://:redis-canary-2@h",
        admin_secret="admin-canary-3",
        worker_key="worker-canary-4",
        alert_webhook_url="https://hooks.example.com/canary-5",
    )
    know(secrets_in(settings))
    text = (
        "x p@ssword-1 p%40ssword-1 redis-canary-2 admin-canary-3 worker-canary-4 https://hooks.example.com/canary-5 y"
    )
    assert redacted(text) == f"x {' '.join([HIDDEN] * 6)} y"


def test_a_password_that_is_a_common_word_does_not_redact_the_log() -> None:
    know(secrets_in(Settings(database_url="postgresql://postgres:postgres@h/postgres")))
    assert redacted("postgres is behind a pooler") == "postgres is behind a pooler"
    assert redacted("postgresql://postgres:postgres@h/postgres") == "postgresql://postgres:***@h/postgres"


@pytest.mark.parametrize("piece", ["token", "a", "://", "password=", "bearer ", 'cookie"', "x://a:"])
def test_redaction_is_fast_for_any_text(piece: str) -> None:
    """What is in it may come from anybody."""
    text = piece * 10**6
    begun = time.process_time()
    assert len(redacted(text)) <= CHARS_MAX
    assert len(redacted_end(text)) <= CHARS_MAX + 1
    assert time.process_time() - begun < 5


def test_a_truncated_secret_is_redacted() -> None:
    know([S])
    for spare in range(len(S)):
        assert S[:4] not in redacted("x" * (100 - spare) + S, 100)


def test_values_of_secret_fields_are_redacted_completely() -> None:
    given = {"password": S, "user": {"apiKey": [S], "name": "n", "n": 5}, "cookies": {"a": S}, "lease_token": 7}
    assert redacted_value(given) == {
        "password": HIDDEN,
        "user": {"apiKey": HIDDEN, "name": "n", "n": 5},
        "cookies": HIDDEN,
        "lease_token": HIDDEN,
    }
