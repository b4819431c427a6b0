"""Tokens that a route checks: bound to method, key and time."""

from collections.abc import Callable
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from holdfast.clock import MovableClock
from holdfast.errors import Forbidden, Invalid
from holdfast.storage import Signer, Storage

SECRET = b"a secret of 26 characters."


@pytest.fixture
def signer(clock: MovableClock) -> Signer:
    return Signer(SECRET, clock)


def test_a_token_is_valid_for_its_method_and_key_until_it_expires(signer: Signer, clock: MovableClock) -> None:
    token = signer.sign("GET", "a/é b", 60)
    signer.verify(token, "GET", "a/é b")
    clock.advance(59)
    signer.verify(token, "GET", "a/é b")
    clock.advance(1)
    with pytest.raises(Forbidden) as refused:
        signer.verify(token, "GET", "a/é b")
    assert refused.value.code == "signature_expired"


def changed(token: str) -> list[str]:
    version, expires, signature = token.split(".")
    return [
        f"{version}.{int(expires) + 1}.{signature}",
        f"{version}.{expires}.{signature[:-1]}{'0' if signature[-1] != '0' else '1'}",
        f"2.{expires}.{signature}",
        f"{version}.{expires}.",
        f"{token}0",
        f"{version}.0{expires}.{signature}",
        f"{version}.\u0661{expires[1:]}.{signature}",
        f"{token}\n",
        "",
        "é",
        "1..",
    ]


@pytest.mark.parametrize("place", range(11))
def test_a_modified_token_is_rejected(signer: Signer, place: int) -> None:
    with pytest.raises(Forbidden) as refused:
        signer.verify(changed(signer.sign("GET", "a", 60))[place], "GET", "a")
    assert refused.value.code == "invalid_signature"


@pytest.mark.parametrize(
    ("method", "key"), [("PUT", "a"), ("GET", "b"), ("GET", "a/"), ("get", "a"), ("GET", "\ud800")]
)
def test_a_token_is_invalid_for_another_method_or_key(signer: Signer, method: str, key: str) -> None:
    token = signer.sign("GET", "a", 60)
    with pytest.raises(Forbidden) as refused:
        signer.verify(token, method, key)
    assert refused.value.code == "invalid_signature"


def test_a_token_of_another_secret_is_rejected(signer: Signer, clock: MovableClock) -> None:
    with pytest.raises(Forbidden):
        Signer(b"another secret, long enough", clock).verify(signer.sign("GET", "a", 60), "GET", "a")


@pytest.mark.parametrize(
    ("method", "seconds"), [("POST", 60), ("get", 60), ("GET", 0), ("GET", 604_801), ("GET", 1.5), ("GET", -1)]
)
async def test_an_invalid_method_or_lifetime_is_rejected(
    signer: Signer, opened: Callable[..., Storage], kind: str, method: str, seconds: int
) -> None:
    with pytest.raises(Invalid) as refused:
        signer.sign(method, "a", seconds)
    assert refused.value.code == "invalid_signed_url"
    with pytest.raises(Invalid) as refused:
        await opened(kind).signed_url(method, "a", seconds)
    assert refused.value.code == "invalid_signed_url"


def test_a_short_secret_is_rejected_and_no_secret_is_shown(signer: Signer) -> None:
    with pytest.raises(Invalid, match="16 bytes") as refused:
        Signer(b"short")
    assert refused.value.code == "invalid_signing_secret"
    assert "short" not in str(refused.value)
    assert SECRET.decode() not in repr(signer)


@pytest.mark.parametrize("kind", ["directory", "memory"])
async def test_a_signed_url_of_storage_without_a_server_carries_a_token(
    opened: Callable[..., Storage], signer: Signer, kind: str
) -> None:
    storage = opened(kind, signer=signer, base_url="https://jobs.example.com/files/")
    url = urlsplit(await storage.signed_url("GET", "a b/é?#", 60))
    assert (url.scheme, url.netloc, unquote(url.path)) == ("https", "jobs.example.com", "/files/a b/é?#")
    [token] = parse_qs(url.query)["token"]
    signer.verify(token, "GET", "a b/é?#")


@pytest.mark.parametrize("kind", ["directory", "memory"])
async def test_signing_without_a_signer_is_an_error_that_says_what_is_missing(
    opened: Callable[..., Storage], kind: str
) -> None:
    with pytest.raises(Invalid, match="signer= and base_url=") as refused:
        await opened(kind).signed_url("GET", "a", 60)
    assert refused.value.code == "no_signer"
