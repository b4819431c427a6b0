"""No server takes more time or memory than the limits say (SEC-15, SEC-31)."""

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable

import pytest

from holdfast.errors import Invalid
from holdfast.net import AnswerTooLarge, EgressRules, GuardedClient, Limits, MalformedAnswer, OutboundTimeout
from tests.net.conftest import NAME, local
from tests.webhooks.receiver import Got, Receiver, answer

MEGABYTE = 2**20
HEAD = b"HTTP/1.1 200 OK\r\n"


def saying(*pieces: bytes, forever: bool = False) -> Callable[[Got, asyncio.StreamWriter], Awaitable[None]]:
    """Send these, the last one again and again; then stay silent."""

    async def talk(got: Got, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        while forever:
            await writer.drain()
            writer.write(pieces[-1])
        await asyncio.Event().wait()

    return talk


TOO_LARGE = {
    "a length that says so": saying(HEAD + b"content-length: 1001\r\n\r\n"),
    "a body that goes on": saying(HEAD + b"\r\n", b"x" * 1000, forever=True),
    "chunks that go on": saying(
        HEAD + b"transfer-encoding: chunked\r\n\r\n", b"64\r\n" + b"x" * 100 + b"\r\n", forever=True
    ),
    "chunks of one byte": saying(HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 100, forever=True),
    "gzip that never becomes anything": saying(
        HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10], b"\0\0\0\xff\xff" * 100, forever=True
    ),
    "one header": saying(HEAD + b"a: ", b"x" * 1000, forever=True),
    "many headers": saying(HEAD, b"a: b\r\n" * 100, forever=True),
    "informational answers": saying(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, forever=True),
    "trailers": saying(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 100, forever=True),
}


@pytest.mark.parametrize("kind", TOO_LARGE)
async def test_a_response_above_the_size_limit_is_an_error(client: GuardedClient, server: Receiver, kind: str) -> None:
    server.otherwise = TOO_LARGE[kind]
    with pytest.raises(AnswerTooLarge, match=r"^127\.0\.0\.1:\d+: the response has ") as failed:
        await client.get(server.url, limits=Limits(body_bytes=1000, header_bytes=5000))
    assert failed.value.code == "answer_too_large"


async def test_a_body_of_tiny_chunks_is_an_error(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = TOO_LARGE["chunks of one byte"]
    with pytest.raises(AnswerTooLarge, match="chunks that are too small"):
        await client.get(server.url)


async def test_a_body_of_many_short_chunks_is_read(client: GuardedClient, server: Receiver) -> None:
    """As a language model sends them."""
    pieces = HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"6\r\nhello \r\n" * 20_000 + b"0\r\n\r\n"
    server.otherwise = saying(pieces)
    assert len((await client.get(server.url)).body) == 120_000


async def test_a_body_of_exactly_the_size_limit_is_read(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(200, b"x" * 1000)
    assert len((await client.get(server.url, limits=Limits(body_bytes=1000))).body) == 1000


@pytest.mark.parametrize("coding", ["gzip", "deflate", "gzip, gzip"])
async def test_the_size_limit_applies_to_the_decompressed_body(
    client: GuardedClient, server: Receiver, coding: str
) -> None:
    """A bomb: 64 MiB in 64 KiB or less."""
    packed = zlib.compress(bytes(64 * MEGABYTE)) if coding == "deflate" else gzip.compress(bytes(64 * MEGABYTE))
    packed = gzip.compress(packed) if "," in coding else packed
    server.otherwise = answer(200, packed, content_encoding=coding)
    taken: list[bytes] = []

    async def take() -> None:
        async with client.stream("GET", server.url, limits=Limits(body_bytes=4 * MEGABYTE)) as came:
            async for chunk in came.chunks():
                taken.append(chunk)  # noqa: PERF401  what came before the error counts

    with pytest.raises(AnswerTooLarge):
        await take()
    assert MEGABYTE <= sum(map(len, taken)) <= 4 * MEGABYTE


async def test_repeated_compression_is_an_error(client: GuardedClient, server: Receiver) -> None:
    """64 KiB of it could keep the event loop busy for minutes."""
    server.otherwise = answer(200, b"", content_encoding="gzip, gzip, gzip")
    with pytest.raises(MalformedAnswer, match="compressed more than 2 times"):
        await client.get(server.url)


async def test_compressed_bodies_are_decompressed(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = answer(200, gzip.compress(b"hello"), content_encoding="gzip")
    assert (await client.get(server.url)).body == b"hello"
    async with client.stream("GET", server.url) as came:
        assert gzip.decompress(b"".join([chunk async for chunk in came.raw_chunks()])) == b"hello"


async def test_a_large_response_can_be_streamed(client: GuardedClient, server: Receiver) -> None:
    async def talk(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        for _ in range(64):
            writer.write(b"x" * 65_536)
            await writer.drain()

    server.otherwise = talk
    async with client.stream("GET", server.url) as came:
        assert came.status == 200
        sizes = [len(chunk) async for chunk in came.chunks()]
    assert sum(sizes) == 64 * 65_536
    assert max(sizes) <= 65_536


async def test_a_response_stream_can_be_closed_early(client: GuardedClient, server: Receiver) -> None:
    server.otherwise = saying(HEAD + b"\r\n", b"x" * 1000, forever=True)
    async with client.stream("GET", server.url) as came:
        async for chunk in came.chunks():
            assert chunk
            break


SLOW = {
    "no answer": saying(),
    "half a head": saying(HEAD),
    "half a body": saying(HEAD + b"content-length: 9\r\n\r\nabc"),
    "informational answers": saying(b"HTTP/1.1 102 Processing\r\n\r\n"),
}


@pytest.mark.parametrize("kind", SLOW)
async def test_a_silent_server_times_out(client: GuardedClient, server: Receiver, kind: str) -> None:
    server.otherwise = SLOW[kind]
    with pytest.raises(OutboundTimeout, match=r"no data received for 0\.1 s") as failed:
        await client.get(server.url, limits=Limits(read_seconds=0.1))
    assert failed.value.code == "outbound_timeout"
    with pytest.raises(OutboundTimeout, match=r"no response within 0\.1 s"):
        await client.get(server.url, limits=Limits(total_seconds=0.1))


@pytest.mark.parametrize("head", [b"", HEAD + b"\r\n"])
async def test_a_slow_response_exceeds_the_total_timeout(client: GuardedClient, server: Receiver, head: bytes) -> None:
    """Each byte comes in time; all of them do not."""

    async def drip(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(b"H")
            await asyncio.sleep(0.01)

    server.otherwise = drip
    with pytest.raises(OutboundTimeout, match=r"no response within 0\.3 s"):
        await client.get(server.url, limits=Limits(total_seconds=0.3, read_seconds=10))


async def test_redirects_share_the_total_timeout(client: GuardedClient, server: Receiver) -> None:
    async def slow(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        await answer(302, location=server.url)(got, writer)

    server.otherwise = slow
    with pytest.raises(OutboundTimeout):
        await client.get(server.url, limits=Limits(total_seconds=0.25, redirects=100))


async def test_a_connection_that_is_not_accepted_times_out() -> None:
    """The handshake belongs to the connection: this server never begins it."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with GuardedClient(local()) as client:
        with pytest.raises(OutboundTimeout, match=r"no connection within 0\.1 s"):
            await client.get(f"https://{NAME}:{port}/", limits=Limits(connect_seconds=0.1))
    server.close()


async def test_a_hanging_resolver_exceeds_the_total_timeout() -> None:
    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    async with GuardedClient(EgressRules(resolver=silent)) as client:
        with pytest.raises(OutboundTimeout, match=r"example\.com: no response within 0\.1 s"):
            await client.get("https://example.com/", limits=Limits(total_seconds=0.1))


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "5", None])
def test_an_invalid_time_limit_is_an_error(value: float) -> None:
    with pytest.raises(Invalid, match="total_seconds") as refused:
        Limits(total_seconds=value)
    assert refused.value.code == "invalid_field"
