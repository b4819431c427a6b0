"""One request to one server: what is sent, what comes back, what goes wrong (SEC-30, SEC-31)."""

import asyncio
import ssl
from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.net import AddressRefused, EgressRules, GuardedClient, MalformedAnswer, OutboundError, Unreachable
from tests.net.conftest import NAME, local
from tests.webhooks.receiver import Got, Receiver, answer, receiving


async def test_a_request_returns_status_headers_and_body(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(201, b'{"id": 7}', x_version="2")
    url = server.url.replace("127.0.0.1", NAME) + "?a=b%20c"
    came = await client.request("PUT", url + "#part", headers={"Accept": "application/json"}, json={"a": 1})
    assert (came.status, came.headers["X-Version"], came.json(), came.url) == (201, "2", {"id": 7}, url)
    assert came.redirects == ()
    [got] = server.got
    assert got.head == "PUT /hook?a=b%20c HTTP/1.1"
    assert got.body == b'{"a":1}'
    assert got.headers == {
        "host": url.split("/")[2],
        "user-agent": "holdfast",
        "accept-encoding": "gzip, deflate",
        "accept": "application/json",
        "content-type": "application/json",
        "content-length": "7",
    }


async def test_requests_with_and_without_a_body(client: GuardedClient, server: Receiver) -> None:
    await client.request("POST", server.url, body="grün", headers={"content-type": "text/plain"})
    await client.request("POST", server.url)
    await client.request("POST", server.url, json=None)
    await client.get(server.url)
    assert [(got.body, got.headers.get("content-length")) for got in server.got] == [
        ("grün".encode(), "5"),
        (b"", "0"),
        (b"null", "4"),
        (b"", None),
    ]


async def test_an_error_status_is_returned_not_raised(client: GuardedClient, server: Receiver) -> None:
    server.answers = [answer(404, b"no"), answer(500), answer(304), answer(302)]
    assert [(await client.get(server.url)).status for _ in range(4)] == [404, 500, 304, 302]


async def test_a_response_to_head_has_no_body(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(200, content_length="99999999999")
    came = await client.request("HEAD", server.url)
    assert (came.status, came.body) == (200, b"")


async def test_the_environment_is_ignored(
    server: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: GuardedClient
) -> None:
    """SEC-31: no proxies, no credentials, no cookies."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    server.otherwise = answer(200, set_cookie="a=b")
    for _ in range(2):
        assert (await client.get(server.url)).status == 200
    assert set(server.got[1].headers) == {"host", "user-agent", "accept-encoding"}


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "connection", "b ad", "", "a\r\nb"])
async def test_a_reserved_header_is_rejected(client: GuardedClient, server: Receiver, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        await client.get(server.url, headers={name: "x"})
    assert refused.value.code == "invalid_outbound_request"
    assert server.got == []


@pytest.mark.parametrize("value", ["a\r\nx-injected: 1", "a\nb", "\x00", "ä", " a", "a ", 7])
async def test_an_invalid_header_value_is_rejected_and_not_shown(client: GuardedClient, value: str) -> None:
    with pytest.raises(Invalid, match=r"the header x-key must be one line") as refused:
        await client.get("http://127.0.0.1/", headers={"x-key": value})
    assert refused.value.code == "invalid_outbound_request"
    with pytest.raises(Invalid):
        GuardedClient(headers={"x-key": value})


async def test_an_invalid_method_or_a_second_body_is_rejected(client: GuardedClient, server: Receiver) -> None:
    for method in ("get", "CONNECT", "GET /", "", "G\r\nET"):
        with pytest.raises(Invalid) as refused:
            await client.request(method, server.url)
        assert refused.value.code == "invalid_outbound_request"
    with pytest.raises(Invalid) as refused:
        await client.request("POST", server.url, body=b"x", json=1)
    assert refused.value.code == "invalid_outbound_request"
    assert server.got == []


async def test_an_internal_address_is_rejected_before_connecting(server: Receiver) -> None:
    async with GuardedClient() as client:
        for url in (server.url, "http://[::1]/", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"):
            with pytest.raises(AddressRefused):
                await client.get(url)
    assert server.got == []


async def test_the_connection_uses_the_address_that_was_checked(server: Receiver) -> None:
    """SEC-30: a name that turns inside is refused at its next look-up, and nothing looks it up a second time."""
    said = iter(["127.0.0.1", "127.0.0.2"])

    async def flipping(host: str, port: int) -> list[str]:
        return [next(said)]

    url = server.url.replace("127.0.0.1", NAME)
    async with GuardedClient(local(resolver=flipping)) as client:
        assert (await client.get(url)).status == 200
        with pytest.raises(AddressRefused, match="not public"):
            await client.get(url)
    assert len(server.got) == 1


async def test_the_next_address_of_a_host_name_is_tried(server: Receiver) -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with GuardedClient(local(allow=["127.0.0.0/30"], resolver=two)) as client:
        assert (await client.get(server.url.replace("127.0.0.1", NAME))).status == 200


async def test_an_unreachable_server_is_an_error(client: GuardedClient) -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError

    with pytest.raises(Unreachable) as failed:
        await client.get("http://127.0.0.1:9/secret?key=secret")
    assert failed.value.code == "host_unreachable"
    assert failed.value.message.startswith("127.0.0.1:9: ConnectError")
    async with GuardedClient(EgressRules(resolver=unknown)) as other:
        with pytest.raises(Unreachable, match="cannot be resolved"):
            await other.get("https://example.com/")


WRONG = {
    "nothing": (b"", Unreachable),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-", Unreachable),
    "half a body": (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", Unreachable),
    "half a chunk": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nabc", Unreachable),
    "not HTTP": (b"\x1b[31mjunk\r\n\r\n", MalformedAnswer),
    "no status": (b"HTTP/1.1 abc\r\n\r\n", MalformedAnswer),
    "a chunk without size": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc", MalformedAnswer),
    "not gzip": (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", MalformedAnswer),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_malformed_response_is_an_error(client: GuardedClient, server: Receiver, wrong: str) -> None:
    said, kind = WRONG[wrong]

    async def talk(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(said)

    server.otherwise = talk
    with pytest.raises(OutboundError) as failed:
        await client.get(server.url + "?key=secret", headers={"authorization": "Bearer secret"})
    assert type(failed.value) is kind
    assert failed.value.message.isprintable()
    assert "secret" not in failed.value.message


async def test_an_invalid_json_body_is_an_error(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(200, b"<html>")
    came = await client.get(server.url)
    with pytest.raises(MalformedAnswer, match=r"127.0.0.1: the body is not JSON"):
        came.json()


async def test_certificates_are_verified_for_the_requested_host_name(certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    async with receiving(tls) as server:
        async with GuardedClient(local(), tls=trusting) as client:
            assert (await client.get(server.url.replace("127.0.0.1", NAME))).status == 200
            for other in ("other.example.com", "127.0.0.1"):
                with pytest.raises(Unreachable, match="certificate"):
                    await client.get(server.url.replace("127.0.0.1", other))
        async with GuardedClient(local()) as client:
            with pytest.raises(Unreachable, match="certificate"):
                await client.get(server.url.replace("127.0.0.1", NAME))
        assert len(server.got) == 1
