"""Redirects: each hop is checked, the method follows RFC 9110, and credentials stay with their origin."""

from collections.abc import AsyncIterator

import pytest

from holdfast.net import AddressRefused, GuardedClient, Limits, TooManyRedirects
from tests.net.conftest import NAME, local
from tests.webhooks.receiver import Receiver, answer, receiving

SECRETS = {
    "Authorization": "Bearer secret",
    "Cookie": "a=secret",
    "Proxy-Authorization": "secret",
    "X-Api-Key": "secret",
    "X-Auth-Token": "secret",
}


@pytest.fixture
async def other() -> AsyncIterator[Receiver]:
    async with receiving() as other:
        yield other


async def test_a_redirect_is_followed(client: GuardedClient, server: Receiver) -> None:
    server.answers = [answer(302, location="other/page?x=1#part"), answer(301, location="/last ü"), answer(200, b"ok")]
    came = await client.get(server.url)
    site = server.url.removesuffix("/hook")
    assert (came.status, came.body, came.url) == (200, b"ok", f"{site}/last%20%C3%BC")
    assert came.redirects == (server.url, f"{site}/other/page?x=1")
    assert [got.head.split()[1] for got in server.got] == ["/hook", "/other/page?x=1", "/last%20%C3%BC"]


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        *[(status, "GET", "GET") for status in (301, 302, 303, 307, 308)],
        *[(status, "HEAD", "HEAD") for status in (301, 302, 303, 307, 308)],
        *[
            (301, "POST", "GET"),
            (302, "POST", "GET"),
            (303, "POST", "GET"),
            (307, "POST", "POST"),
            (308, "POST", "POST"),
        ],
        *[(301, "PUT", "PUT"), (302, "DELETE", "DELETE"), (303, "PUT", "GET")],
    ],
)
async def test_the_method_of_a_redirected_request(
    client: GuardedClient, server: Receiver, status: int, method: str, then: str
) -> None:
    server.answers = [answer(status, location="/next")]
    body = b"{}" if method in ("POST", "PUT") else None
    await client.request(method, server.url, body=body, headers={"content-type": "application/json", "x-kept": "1"})
    second = server.got[1]
    assert second.head == f"{then} /next HTTP/1.1"
    assert second.headers["x-kept"] == "1"
    if method == then:
        assert second.body == (body or b"")
        assert second.headers["content-type"] == "application/json"
    else:
        assert second.body == b""
        assert not {"content-type", "content-length"} & set(second.headers)


async def test_credentials_are_not_sent_to_another_origin(
    client: GuardedClient, server: Receiver, other: Receiver
) -> None:
    server.answers = [answer(307, location="/same"), answer(307, location=other.url)]
    other.answers = [answer(307, location=server.url)]
    await client.request("POST", server.url, body=b"x", headers={**SECRETS, "X-Kept": "1"})
    first, same, back = server.got
    [away] = other.got
    names = {name.lower() for name in SECRETS}
    assert all(names <= set(got.headers) for got in (first, same))
    assert not any(names & set(got.headers) for got in (away, back)), "not even when it comes back"
    assert (away.headers["x-kept"], away.body) == ("1", b"x")


async def test_another_host_name_is_another_origin(client: GuardedClient, server: Receiver) -> None:
    server.answers = [answer(302, location=server.url.replace("127.0.0.1", NAME))]
    await client.get(server.url, headers=SECRETS)
    assert "authorization" in server.got[0].headers
    assert "authorization" not in server.got[1].headers


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2/",
        "http://169.254.169.254/latest/meta-data/",
        "//10.0.0.1/",
        "http://0x7f.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::1/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://user:secret@example.com/",
        "http://example.com\\@127.0.0.1/",
        "javascript:alert(1)",
    ],
)
async def test_a_redirect_to_an_internal_address_is_rejected(
    client: GuardedClient, server: Receiver, location: str
) -> None:
    """SEC-30: each hop is checked like the first."""
    server.answers = [answer(302, location=location)]
    with pytest.raises(AddressRefused, match="the redirect cannot be followed: ") as refused:
        await client.get(server.url)
    assert "secret" not in refused.value.message
    assert len(server.got) == 1


async def test_a_redirect_to_a_host_name_with_an_internal_address_is_rejected(server: Receiver) -> None:
    """SEC-30: the addresses of each hop, too."""

    async def by_name(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == NAME else ["127.0.0.2"]

    server.answers = [answer(302, location="http://other.example.com/")]
    async with GuardedClient(local(resolver=by_name)) as client:
        with pytest.raises(AddressRefused, match=r"other\.example\.com: the host has an address that is not public"):
            await client.get(server.url.replace("127.0.0.1", NAME))


async def test_a_redirect_to_an_unlisted_host_is_rejected(server: Receiver) -> None:
    server.answers = [answer(302, location=server.url)]
    async with GuardedClient(local(hosts=NAME)) as client:
        with pytest.raises(AddressRefused, match="not on the list"):
            await client.get(server.url.replace("127.0.0.1", NAME))
    assert len(server.got) == 1


async def test_too_many_redirects_are_an_error(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(302, location=server.url)
    with pytest.raises(TooManyRedirects, match="more than 5 redirects") as failed:
        await client.get(server.url)
    assert failed.value.code == "too_many_redirects"
    assert len(server.got) == 6
    server.got.clear()
    with pytest.raises(TooManyRedirects):
        await client.get(server.url, limits=Limits(redirects=1))
    assert len(server.got) == 2


async def test_redirects_can_be_returned_to_the_caller(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(302, location="http://127.0.0.2/")
    came = await client.get(server.url, limits=Limits(redirects=0))
    assert (came.status, came.headers["location"]) == (302, "http://127.0.0.2/")
