"""One message to one receiver, however that receiver behaves (F38, SEC-30, SEC-31)."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.webhooks import sender as sending
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import DeliveryResponse, WebhookSender
from tests.webhooks.receiver import Got, Receiver, answer, receiving

NAME = "hooks.example.com"


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
async def sender() -> AsyncIterator[WebhookSender]:
    sender = WebhookSender(Egress(private=True, resolver=here))
    yield sender
    await sender.close()


async def send(sender: WebhookSender, url: str, seconds: float = 20, body: bytes = b"{}") -> DeliveryResponse:
    return await sender.send(sender.egress.check(url), {"webhook-id": "1"}, body, seconds)


async def test_a_message_arrives_complete_with_its_host_header(sender: WebhookSender, receiver: Receiver) -> None:
    receiver.otherwise = answer(200, b"thanks")
    url = receiver.url.replace("127.0.0.1", NAME) + "?a=b%20c"
    assert await send(sender, url, body=b'{"a": 1}') == DeliveryResponse(200, None, "thanks")
    [got] = receiver.got
    assert got.head == "POST /hook?a=b%20c HTTP/1.1"
    assert got.body == b'{"a": 1}'
    assert got.headers["host"] == url.split("/")[2]
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == "1"


async def test_no_cookies_proxies_or_credentials_of_the_environment_are_used(
    sender: WebhookSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SEC-31: no cookies, no proxies or credentials from the environment."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    receiver.otherwise = answer(200, set_cookie="a=b")
    for _ in range(2):
        assert (await send(sender, receiver.url)).status == 200
    assert set(receiver.got[1].headers) == {"host", "content-type", "content-length", "webhook-id"}


async def test_a_redirect_is_not_followed(sender: WebhookSender, receiver: Receiver) -> None:
    """SEC-31: nobody follows it."""
    receiver.otherwise = answer(302, location=receiver.url)
    assert (await send(sender, receiver.url)).status == 302
    assert len(receiver.got) == 1


async def test_a_hanging_receiver_times_out(sender: WebhookSender, receiver: Receiver) -> None:
    async def hang(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    receiver.otherwise = hang
    assert await send(sender, receiver.url, seconds=0.2) == DeliveryResponse(None, "no response within 0.2 s")


async def test_a_receiver_that_sends_headers_slowly_times_out(sender: WebhookSender, receiver: Receiver) -> None:
    async def drip(got: Got, writer: asyncio.StreamWriter) -> None:
        for _ in range(1000):
            writer.write(b"H")
            await asyncio.sleep(0.02)

    receiver.otherwise = drip
    assert (await send(sender, receiver.url, seconds=0.3)).status is None


async def test_a_slow_response_body_is_not_awaited(
    sender: WebhookSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status has been told."""

    async def drip(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    monkeypatch.setattr(sending, "EXCERPT_SECONDS", 0.1)
    receiver.otherwise = drip
    assert (await send(sender, receiver.url)).status == 200


async def test_only_the_beginning_of_a_response_body_is_read_and_stored(
    sender: WebhookSender, receiver: Receiver
) -> None:
    """SEC-31."""
    written = 0

    async def flood(got: Got, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 10000000000\r\n\r\n")
        while written < 10**9:
            writer.write(b"x" * 65_536)
            await writer.drain()
            written += 65_536

    receiver.otherwise = flood
    came = await send(sender, receiver.url)
    assert (came.status, came.excerpt) == (500, "x" * 500)
    assert written < 50_000_000, "what fits into the buffers between us"


async def test_a_response_is_stored_as_one_line_of_plain_text(sender: WebhookSender, receiver: Receiver) -> None:
    """No receiver writes lines of its own into our log, nor unpacks anything in our memory."""
    receiver.otherwise = answer(500, b"no\r\nWARNING forged\x1b[31m \xff", content_encoding="gzip")
    assert (await send(sender, receiver.url)).excerpt == "no  WARNING forged [31m \ufffd"


@pytest.mark.parametrize(
    "junk", [b"", b"junk\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 50_000]
)
async def test_a_malformed_response_is_a_failure(sender: WebhookSender, receiver: Receiver, junk: bytes) -> None:
    async def talk(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(junk)

    receiver.otherwise = talk
    came = await send(sender, receiver.url)
    assert came.status is None
    assert came.error


async def test_an_unreachable_receiver_is_a_failure(sender: WebhookSender) -> None:
    came = await send(sender, "http://127.0.0.1:9/")
    assert (came.status, came.error is not None) == (None, True)


async def test_the_next_address_is_tried_when_the_first_is_unreachable(receiver: Receiver) -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    sender = WebhookSender(Egress(private=True, resolver=two))
    assert (await send(sender, receiver.url.replace("127.0.0.1", NAME))).status == 200
    await sender.close()


async def test_retry_after_is_read_in_seconds(sender: WebhookSender, receiver: Receiver) -> None:
    receiver.answers = [answer(503, retry_after="120"), answer(503, retry_after="Wed, 21 Oct 2026 07:28:00 GMT")]
    assert [(await send(sender, receiver.url)).retry_after for _ in range(2)] == [120, None]


async def test_a_host_name_that_changes_to_an_internal_address_is_rejected(receiver: Receiver) -> None:
    """SEC-30: the address is looked up once for each try, checked, and used as it is."""
    asked = 0

    async def flipping(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.1"]

    sender = WebhookSender(Egress(resolver=flipping))
    came = await send(sender, "https://example.com:8443/")
    assert came == DeliveryResponse(None, "the host has an address that is not public")
    assert (asked, receiver.got) == (1, [])
    await sender.close()


# -- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For one name, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    options = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}"
    files = ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *options.split(), *files], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
async def secured(certificate: Path) -> AsyncIterator[Receiver]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    async with receiving(tls) as receiver:
        yield receiver


async def test_the_certificate_is_verified_for_the_host_name_not_the_address(
    secured: Receiver, certificate: Path
) -> None:
    """SEC-30: original SNI and Host."""
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    sender = WebhookSender(Egress(private=True, resolver=here), tls=trusting)
    assert (await send(sender, secured.url.replace("127.0.0.1", NAME))).status == 200
    came = await send(sender, secured.url.replace("127.0.0.1", "other.example.com"))
    assert came.status is None
    assert "certificate" in (came.error or "").lower()
    await sender.close()


async def test_an_untrusted_certificate_is_a_failure(secured: Receiver) -> None:
    """F38: TLS error."""
    sender = WebhookSender(Egress(private=True, resolver=here))
    assert (await send(sender, secured.url.replace("127.0.0.1", NAME))).status is None
    assert secured.got == []
    await sender.close()
