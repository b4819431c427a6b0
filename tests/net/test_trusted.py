"""Origins that an operator trusts: one scheme, host and port each, and nothing beside it."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from holdfast.errors import Invalid
from holdfast.net import AddressRefused, EgressRules, GuardedClient
from tests.net.conftest import here
from tests.net.test_redirects import SECRETS
from tests.webhooks.receiver import Receiver, answer, receiving
from tests.webhooks.test_egress import EXAMPLE, answering


@pytest.fixture
async def other() -> AsyncIterator[Receiver]:
    async with receiving() as other:
        yield other


@pytest.fixture
async def trusting(server: Receiver) -> AsyncIterator[GuardedClient]:
    async with GuardedClient(EgressRules(trusted=[server.url])) as client:
        yield client


@pytest.mark.parametrize(
    ("trusted", "url"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/a?b=c"),
        ("http://minio:9000", "http://minio:9000/"),
        ("http://MinIO:9000/some/path", "http://minio:9000/another"),
        ("http://localhost", "http://localhost:80/"),
        ("https://10.0.0.1", "https://10.0.0.1:443/"),
        ("https://api.example.com:9443", "https://API.example.com:9443/"),
        ("http://[::1]:9000", "http://[0:0::1]:9000/"),
    ],
)
async def test_a_trusted_origin_is_allowed(trusted: str, url: str) -> None:
    rules = EgressRules(trusted=[trusted], resolver=answering("10.0.0.7"))
    target = rules.check(url)
    assert await rules.addresses(target) == [target.host if target.is_address else "10.0.0.7"]


@pytest.mark.parametrize(
    "url",
    [
        "https://minio:9000/",
        "http://minio:9001/",
        "http://minio/",
        "http://minio.:9000/",
        "http://xminio:9000/",
        "http://minio.example.com:9000/",
        "http://user@minio:9000/",
        "http://minio:9000@10.0.0.1/",
        "http://minio:9000\\@10.0.0.1/",
        "http://10.0.0.7:9000/",
        "http://127.0.0.1:9000/",
        "http://2130706433:9000/",
        "http://169.254.169.254/",
        "http://localhost/",
        "http://example.com:9000/",
    ],
)
def test_nothing_else_is_trusted_with_it(url: str) -> None:
    with pytest.raises(AddressRefused):
        EgressRules(trusted=["http://minio:9000", "http://127.0.0.1:9001"]).check(url)


async def test_the_addresses_of_other_ports_of_a_trusted_host_are_checked() -> None:
    rules = EgressRules(trusted=["http://api.example.com:9000"], resolver=answering(EXAMPLE, "10.0.0.7"))
    assert await rules.addresses(rules.check("http://api.example.com:9000/")) == [EXAMPLE, "10.0.0.7"]
    with pytest.raises(AddressRefused, match="not public"):
        await rules.addresses(rules.check("http://api.example.com/"))


def test_the_other_rules_hold_for_trusted_origins() -> None:
    rules = EgressRules(hosts="api.example.com", trusted=["http://minio:9000"])
    with pytest.raises(AddressRefused, match="not on the list"):
        rules.check("http://minio:9000/")
    with pytest.raises(AddressRefused, match="characters"):
        EgressRules(trusted=["http://minio:9000"]).check(f"http://minio:9000/{'a' * 8000}")


@pytest.mark.parametrize("url", ["", "minio:9000", "http://", "ftp://minio", "http://minio:0", "http://a:b@minio", "*"])
def test_an_invalid_trusted_url_is_an_error_at_once(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        EgressRules(trusted=[url])
    assert refused.value.code == "invalid_origin"


def test_a_trusted_url_has_an_allowed_scheme() -> None:
    with pytest.raises(Invalid, match="https://"):
        EgressRules(schemes=["https"], trusted=["http://minio:9000"])


async def test_a_trusted_server_is_requested(trusting: GuardedClient, server: Receiver, other: Receiver) -> None:
    server.answers = [answer(302, location="/next"), answer(200, b"ok")]
    assert (await trusting.get(server.url)).body == b"ok"
    with pytest.raises(AddressRefused):
        await trusting.get(other.url)
    assert not other.got


async def test_a_trusted_local_name_is_requested(server: Receiver) -> None:
    port = urlsplit(server.url).port
    async with GuardedClient(EgressRules(trusted=[f"http://minio:{port}"], resolver=here)) as client:
        assert (await client.get(f"http://minio:{port}/file")).status == 200
        with pytest.raises(AddressRefused):
            await client.get(f"http://127.0.0.1:{port}/file")
    assert [got.headers["host"] for got in server.got] == [f"minio:{port}"]


@pytest.mark.parametrize(
    "location", ["http://10.0.0.1/", "http://169.254.169.254/latest/", "http://localhost/", "//[::1]/"]
)
async def test_a_trusted_server_cannot_redirect_to_an_internal_address(
    trusting: GuardedClient, server: Receiver, location: str
) -> None:
    server.answers = [answer(302, location=location)]
    with pytest.raises(AddressRefused, match="the redirect cannot be followed"):
        await trusting.get(server.url)


async def test_a_trusted_server_cannot_redirect_to_another_port(
    trusting: GuardedClient, server: Receiver, other: Receiver
) -> None:
    server.otherwise = answer(307, location=other.url)
    with pytest.raises(AddressRefused, match="its port must be one of"):
        await trusting.get(server.url)
    async with GuardedClient(EgressRules(trusted=[server.url], ports=None)) as client:
        with pytest.raises(AddressRefused, match="not public"):
            await client.get(server.url)
    assert not other.got


async def test_credentials_are_not_sent_from_one_trusted_origin_to_another(server: Receiver, other: Receiver) -> None:
    server.answers = [answer(307, location=other.url)]
    async with GuardedClient(EgressRules(trusted=[server.url, other.url])) as client:
        await client.get(server.url, headers=SECRETS)
    [away] = other.got
    assert not {name.lower() for name in SECRETS} & set(away.headers)


async def test_a_kept_connection_is_not_used_for_another_origin(server: Receiver) -> None:
    """The same server, under a name that is not trusted."""
    server.keep_alive = True
    port = urlsplit(server.url).port
    rules = EgressRules(trusted=[f"http://minio:{port}"], ports=None, resolver=here)
    async with GuardedClient(rules) as client:
        await client.get(f"http://minio:{port}/")
        for url in (f"http://other.example.com:{port}/", f"http://127.0.0.1:{port}/"):
            with pytest.raises(AddressRefused):
                await client.get(url)
        await client.get(f"http://minio:{port}/")
    assert (server.connections, len(server.got)) == (1, 2)
