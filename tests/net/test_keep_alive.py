"""Connections are used again by requests to the same origin, and only by them."""

import asyncio

import pytest

from holdfast.net import GuardedClient, Limits, MalformedAnswer, Unreachable
from tests.net.conftest import NAME
from tests.webhooks.receiver import Got, Receiver, answer


@pytest.fixture(autouse=True)
def keeping(server: Receiver) -> None:
    server.keep_alive = True


async def test_a_connection_is_reused(client: GuardedClient, server: Receiver) -> None:
    server.answers = [answer(200, b"a" * 70_000), answer(404), answer(302, b"moved", location="/x"), answer(204)]
    for _ in range(3):
        await client.get(server.url)
    assert (len(server.got), server.connections) == (4, 1)


async def test_another_host_name_uses_another_connection(client: GuardedClient, server: Receiver) -> None:
    for host in ("127.0.0.1", NAME, "other.example.com", NAME):
        await client.get(server.url.replace("127.0.0.1", host))
    assert (len(server.got), server.connections) == (4, 3)


async def test_a_connection_with_an_unread_response_is_closed(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(200, b"a" * 200_000)
    for _ in range(2):
        async with client.stream("GET", server.url) as came:
            assert came.status == 200
    assert server.connections == 2


async def test_no_connection_is_kept_when_the_limit_is_zero(client: GuardedClient, server: Receiver) -> None:
    for limits in (Limits(idle_seconds=0), Limits(idle_connections=0)):
        await client.get(server.url, limits=limits)
    await client.get(server.url)
    assert server.connections == 3


async def test_the_oldest_idle_connection_is_closed_above_the_limit(client: GuardedClient, server: Receiver) -> None:
    limits = Limits(idle_connections=1)
    for host in (NAME, "127.0.0.1", NAME):
        await client.get(server.url.replace("127.0.0.1", host), limits=limits)
    assert server.connections == 3


async def closing(got: Got, writer: asyncio.StreamWriter) -> None:
    """No answer, and no connection any more."""
    writer.close()


async def test_a_connection_that_the_server_closed_is_replaced(client: GuardedClient, server: Receiver) -> None:
    server.answers = [answer(200), closing, answer(200, b"again")]
    await client.get(server.url)
    assert (await client.get(server.url)).body == b"again"
    assert server.connections == 2


async def test_a_request_that_the_server_may_have_processed_is_not_retried(
    client: GuardedClient, server: Receiver
) -> None:
    server.answers = [answer(200), closing]
    await client.get(server.url)
    with pytest.raises(Unreachable):
        await client.request("POST", server.url, body=b"x")
    assert len(server.got) == 2


async def test_unsolicited_data_is_not_taken_for_a_response(client: GuardedClient, server: Receiver) -> None:
    speak, spoken = asyncio.Event(), asyncio.Event()

    async def twice(got: Got, writer: asyncio.StreamWriter) -> None:
        await answer(200, b"first")(got, writer)
        await writer.drain()
        await speak.wait()
        await answer(200, b"smuggled")(got, writer)
        await writer.drain()
        spoken.set()

    server.answers = [twice]
    assert (await client.get(server.url)).body == b"first"
    speak.set()
    await spoken.wait()
    assert (await client.get(server.url)).body == b""


async def both(got: Got, writer: asyncio.StreamWriter) -> None:
    """Two answers in one packet."""
    await answer(200, b"first")(got, writer)
    await answer(200, b"smuggled")(got, writer)


async def test_a_response_that_precedes_the_request_is_not_used(client: GuardedClient, server: Receiver) -> None:
    server.answers = [both]
    assert (await client.get(server.url)).body == b"first"
    assert (await client.get(server.url)).body == b""
    server.answers = [both]
    assert (await client.get(server.url)).body == b"first"
    with pytest.raises(MalformedAnswer, match="before the request"):
        await client.request("POST", server.url)


async def test_closing_a_client_closes_its_connections(client: GuardedClient, server: Receiver) -> None:
    await client.get(server.url)
    await client.close()
    await client.get(server.url)
    assert server.connections == 2


async def test_concurrent_requests_share_the_pool(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(200, b"x")
    for _ in range(3):
        came = await asyncio.gather(*(client.get(server.url) for _ in range(10)))
        assert {each.body for each in came} == {b"x"}
    assert len(server.got) == 30
    assert server.connections <= 10


async def test_a_canceled_request_leaves_no_open_connection(client: GuardedClient, server: Receiver) -> None:
    async def hang(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server.answers = [hang]
    asking = asyncio.create_task(client.get(server.url))
    await server.has(1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert (await client.get(server.url)).status == 200
    assert server.connections == 2
