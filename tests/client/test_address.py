"""An address or a key that cannot be right is refused where it is given."""

import logging

import pytest

from holdfast import Client, SyncClient
from holdfast.errors import Invalid
from tests.logs import logged


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "must start with"),
        ("jobs.example.com", "must start with"),
        ("ftp://jobs.example.com", "must start with"),
        ("https://", "has no host"),
        ("https:///path", "has no host"),
        ("https://jobs.example.com:port", "is malformed"),
        ("https://jobs.example.com:0", "port 0 is invalid"),
        ("https://[::1", "is malformed"),
        ("https://me:secret@jobs.example.com", "pass the key separately"),
        ("https://jobs.example.com?key=secret", "query or fragment"),
        ("https://jobs.example.com#top", "query or fragment"),
    ],
)
def test_an_invalid_server_url_is_an_error(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        Client(url)
    assert refused.value.code == "invalid_server_url"
    assert "secret" not in str(refused.value)


def test_a_server_url_may_have_a_path_and_a_trailing_slash() -> None:
    with SyncClient(" https://example.com/jobs/ ") as client:
        assert client.url == "https://example.com/jobs"


@pytest.mark.parametrize("key", ["two words", "a\nline", "ключ"])
def test_an_invalid_key_is_an_error_that_does_not_show_it(key: str) -> None:
    with pytest.raises(Invalid) as refused:
        Client("https://example.com", key)
    assert key not in str(refused.value)


def test_plain_http_to_another_host_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """SEC-45."""
    with caplog.at_level(logging.WARNING, "holdfast.client"):
        for quiet in ("https://example.com", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:1"):
            SyncClient(quiet).close()
        assert logged(caplog) == []
        SyncClient("http://example.com").close()
    assert "unencrypted" in caplog.text
