"""Connections within limits (SEC-16, F15), and how a server starts and stops."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from holdfast.errors import Invalid
from holdfast.model import NewJob
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route
from holdfast.server.http import protocol, request_body, server
from holdfast.server.http.server import address, listen
from tests.server.steps import Served, bearer
from tests.server.steps import serving as served_at
from tests.worker.in_process import until

SOON = 0.3
ESTABLISHED = b"\x01"  # the first byte of what the kernel tells of a connection


class Wire:
    """A client that says exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    @asynccontextmanager
    async def trickling(self, data: bytes) -> AsyncIterator[None]:
        """Meanwhile, byte by byte."""

        async def trickle() -> None:
            for byte in data:
                self._writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        task = asyncio.create_task(trickle())
        try:
            yield
        finally:
            task.cancel()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(60):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            return int(lines[0].split()[1]), headers, await self._reader.readexactly(int(headers["content-length"]))

    async def is_asked_for_the_body(self) -> bool:
        async with asyncio.timeout(60):
            return await self._reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

    async def refusal(self) -> tuple[int, str]:
        status, headers, body = await self.answer()
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["requestId"]
        return status, json.loads(body)["code"]

    async def is_over(self) -> bool:
        async with asyncio.timeout(60):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def wire(served: Served) -> AsyncIterator[Wire]:
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


@pytest.fixture
async def quick(fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A server whose patience is short."""
    for name in ("HEAD_SECONDS_MAX", "LINGER_SECONDS", "LINGER_SECONDS_MAX", "SEND_SECONDS_MAX"):
        monkeypatch.setattr(protocol, name, SOON)
    monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", SOON)
    monkeypatch.setattr(request_body, "BODY_SECONDS_MAX", SOON)
    async with served_at(fresh_sqlite_url) as served:
        yield served


@pytest.fixture
async def patient(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    async with served_at(fresh_sqlite_url) as served:
        yield served


GET = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
POST = b"POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"


# -- heads ------------------------------------------------------------------------------------------------------


async def test_request_headers_above_the_limit_are_rejected(patient: Served) -> None:
    """SEC-15: 16 KiB, whether it comes at once or in pieces."""
    async with wire(patient) as client:
        await client.say(GET[:-2] + b"x-long: " + b"a" * 20_000 + b"\r\n\r\n")
        assert await client.refusal() == (431, "head_too_large")
        assert await client.is_over()
    async with wire(patient) as client:
        await client.say(GET[:-2] + b"x-long: ")
        for _ in range(20):
            await client.say(b"a" * 1_000)
            await asyncio.sleep(0.001)
        assert await client.refusal() == (431, "head_too_large")
        assert await client.is_over()


async def test_long_request_headers_within_the_limit_are_accepted(patient: Served) -> None:
    async with wire(patient) as client:
        await client.say(GET[:-2] + b"x-long: " + b"a" * 16_000 + b"\r\n\r\n")
        assert (await client.answer())[0] == 200


async def test_slow_request_headers_time_out(quick: Served) -> None:
    """SEC-16, F15: slow-loris."""
    async with wire(quick) as client, client.trickling(GET[:-4] + b"x" * 9_000):
        assert await client.refusal() == (408, "head_timeout")
        assert await client.is_over()


async def test_a_silent_connection_is_closed(quick: Served) -> None:
    async with wire(quick) as client:
        assert await client.is_over()


async def test_slow_headers_of_a_second_request_time_out(quick: Served) -> None:
    async with wire(quick) as client:
        await client.say(GET)
        assert (await client.answer())[0] == 200
        async with client.trickling(GET[:-4] + b"x" * 9_000):
            assert await client.refusal() == (408, "head_timeout")


async def test_malformed_http_is_a_problem_response(patient: Served) -> None:
    async with wire(patient) as client:
        await client.say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
        assert await client.refusal() == (400, "malformed_request")
        assert await client.is_over()


CHUNKED = POST.replace(b"content-length: 1000", b"transfer-encoding: chunked")
NO_CHUNK = b"no chunk\r\n"


async def test_a_malformed_chunk_is_a_problem_response(patient: Served) -> None:
    async with wire(patient) as client:
        await client.say(CHUNKED + NO_CHUNK)
        assert await client.refusal() == (400, "malformed_request")
        assert await client.is_over()


async def test_a_malformed_chunk_ends_the_handler_that_waits_for_it(
    patient: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun: it has asked for the body. It does not wait for the end of the connection."""
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 600.0)

    async def has_ended() -> bool:
        return 'route="/jobs",status_code="499"' in (await patient.http.get("/metrics")).text

    async with wire(patient) as client:
        await client.say(CHUNKED[:-2] + b"expect: 100-continue\r\n\r\n")
        assert await client.is_asked_for_the_body()
        await client.say(NO_CHUNK)
        assert await client.refusal() == (400, "malformed_request")
        assert await client.is_over()
        await until(has_ended)


async def test_a_malformed_chunk_is_no_answer_to_a_request_whose_body_is_not_read(fresh_sqlite_url: str) -> None:
    """It may have been carried out: the connection is closed."""
    begun = asyncio.Event()

    async def act(request: Request) -> None:
        begun.set()
        await asyncio.Event().wait()

    route = extension_route("acts", "POST", "/acts", act, scope=None)
    async with served_at(fresh_sqlite_url, routes=[route]) as served, wire(served) as client:
        await client.say(b"POST /acts HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n")
        await begun.wait()
        await client.say(NO_CHUNK)
        assert await client.is_over()


async def test_a_request_with_an_unsupported_transfer_encoding_is_not_handled(fresh_sqlite_url: str) -> None:
    handled = []

    async def act(request: Request) -> None:
        handled.append(request.headers.get("x-name"))

    head = b"POST /acts HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    route = extension_route("acts", "POST", "/acts", act, scope=None)
    async with served_at(fresh_sqlite_url, routes=[route]) as served:
        async with wire(served) as client:
            await client.say(head + b"x-name: one\r\ntransfer-encoding: gzip\r\n\r\n")
            assert await client.refusal() == (400, "malformed_request")
            assert await client.is_over()
        async with wire(served) as client:
            await client.say(head + b"x-name: two\r\n\r\n")
            assert (await client.answer())[0] == 200
    assert handled == ["two"]


@pytest.mark.parametrize("second", [b"no request\r\n\r\n", CHUNKED + NO_CHUNK])
async def test_a_malformed_request_is_no_answer_to_the_one_before(patient: Served, second: bytes) -> None:
    """That one is not answered yet: the connection is closed."""
    job = await patient.engine.create(NewJob(type="a"))
    async with wire(patient) as client:
        wait = f"GET /jobs/{job.id} HTTP/1.1\r\nhost: 127.0.0.1\r\nprefer: wait=60\r\n\r\n"
        await client.say(wait.encode() + second)
        assert await client.is_over()


# -- bodies and answers -----------------------------------------------------------------------------------------


async def test_a_slow_request_body_times_out(quick: Served) -> None:
    """SEC-16, F15."""
    async with wire(quick) as client:
        await client.say(POST)
        async with client.trickling(b" " * 999):
            assert await client.refusal() == (408, "body_timeout")


async def test_an_unread_request_body_does_not_hold_the_connection(quick: Served) -> None:
    """F15: the answer is there before the body, which may go on for ever."""
    async with wire(quick) as client:
        await client.say(POST.replace(b"application/json", b"text/plain"))
        assert await client.refusal() == (415, "unsupported_media_type")
        async with client.trickling(b" " * 999):
            assert await client.is_over()


async def test_a_body_that_arrives_after_the_response_is_ignored(patient: Served) -> None:
    async with wire(patient) as client:
        await client.say(POST.replace(b"application/json", b"text/plain"))
        assert await client.refusal() == (415, "unsupported_media_type")
        await client.say(b" " * 1000)
        await client.say(GET)
        assert (await client.answer())[0] == 200


async def test_the_rest_of_a_rejected_request_may_arrive_in_pieces(
    patient: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LINGER_SECONDS", "LINGER_SECONDS_MAX"):
        monkeypatch.setattr(protocol, name, 60.0)
    async with wire(patient) as client:
        await client.say(POST.replace(b"application/json", b"text/plain"))
        assert await client.refusal() == (415, "unsupported_media_type")
        for _ in range(4):
            await client.say(b" " * 250)
            await asyncio.sleep(0.001)
        await client.say(GET)
        assert (await client.answer())[0] == 200


def test_the_rest_of_a_rejected_request_may_arrive_slowly() -> None:
    """Each piece of it moves the deadline, up to a last one."""
    connection = protocol.HttpProtocol.__new__(protocol.HttpProtocol)
    now, timers, canceled = 100.0, list[float](), list[float]()

    def call_later(seconds: float, then: object) -> SimpleNamespace:
        timers.append(now + seconds)
        return SimpleNamespace(cancel=lambda at=now + seconds: canceled.append(at))

    connection.loop = SimpleNamespace(time=lambda: now, call_later=call_later)  # type: ignore[assignment]
    connection.parser = SimpleNamespace(feed_data=lambda data: None)
    connection.timeout_keep_alive_task = None
    connection._linger_until = now + protocol.LINGER_SECONDS_MAX
    for now in (100.0, 104.0, 108.0, 128.0):  # noqa: B007
        connection.data_received(b" " * 250)
    assert timers == [105.0, 109.0, 113.0, 130.0]
    assert canceled == timers[:-1]


async def test_a_rejected_request_that_stops_arriving_ends_the_connection(quick: Served) -> None:
    async with wire(quick) as client:
        await client.say(POST.replace(b"application/json", b"text/plain"))
        assert await client.refusal() == (415, "unsupported_media_type")
        assert await client.is_over()


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_a_client_that_sends_everything_first_reads_the_rejection(patient: Served, connection: str) -> None:
    """httpx2 reads the response when it has sent the request: a connection that is reset meanwhile loses it."""
    headers = {"content-type": "text/plain", "connection": connection}
    answer = await patient.http.post("/jobs", content=b"x" * 20_000_000, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert (await patient.http.get("/livez")).status_code == 200


async def test_the_connection_ends_when_a_rejected_request_turns_malformed(patient: Served) -> None:
    head = POST.replace(b"content-length: 1000", b"transfer-encoding: chunked").replace(b"/json", b"/xml")
    async with wire(patient) as client:
        await client.say(head)
        assert await client.refusal() == (415, "unsupported_media_type")
        await client.say(b"no chunk\r\n")
        assert await client.is_over()


async def test_a_connection_reset_mid_body_leaves_nothing_behind(patient: Served) -> None:
    """F15: no job, no task, no connection."""
    async with wire(patient) as client:
        await client.say(POST + b'{"jobType": "a", ')
        await asyncio.sleep(0.05)
    assert (await patient.http.get("/jobs")).json()["jobs"] == []


async def test_a_client_that_reads_no_responses_is_disconnected(quick: Served) -> None:
    """F15: trickle reads; the pages asked for are more than the buffers between us hold."""
    host, port = quick.url.removeprefix("http://").split(":")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((host, int(port)))
        deaf.sendall(b"GET /docs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 100)
        for _ in range(600):
            if deaf.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != ESTABLISHED:
                return
            await asyncio.sleep(0.05)
    raise AssertionError("it was waited for")


async def test_an_idle_connection_is_closed(quick: Served) -> None:
    """SEC-16."""
    async with wire(quick) as client:
        await client.say(GET)
        assert (await client.answer())[0] == 200
        assert await client.is_over()


def test_one_timer_watches_the_idle_time_of_a_connection() -> None:
    """Not one for each request: each new wait only moves the time that the timer compares with."""
    connection = protocol.HttpProtocol.__new__(protocol.HttpProtocol)
    now, timers, closed = [100.0], list[float](), list[bool]()
    later = lambda seconds, then: timers.append(now[0] + seconds) or then  # noqa: E731
    connection.loop = SimpleNamespace(time=lambda: now[0], call_later=later)  # type: ignore[assignment]
    connection.timeout_keep_alive = 30
    connection.transport = SimpleNamespace(get_write_buffer_size=lambda: 0, close=lambda: closed.append(True))  # type: ignore[assignment]
    connection._wait_for_request()
    now[0] = 110.0
    connection._wait_for_request()
    assert timers == [130.0]
    now[0] = 130.0
    connection._check_idle()
    assert timers == [130.0, 140.0]
    connection._idle_since = 0.0  # as when a request begins
    now[0] = 140.0
    connection._check_idle()
    assert not closed
    connection._wait_for_request()
    assert timers == [130.0, 140.0, 170.0]
    now[0] = 170.0
    connection._check_idle()
    assert closed


async def test_pipelined_requests_are_answered_in_order(patient: Served) -> None:
    async with wire(patient) as client:
        await client.say(GET + GET.replace(b"/livez", b"/nowhere") + GET)
        assert [(await client.answer())[0] for _ in range(3)] == [200, 404, 200]


# -- many -------------------------------------------------------------------------------------------------------


async def test_connections_above_the_limit_get_503(fresh_sqlite_url: str) -> None:
    async with served_at(fresh_sqlite_url, connections_max=2) as served, wire(served) as one, wire(served) as two:
        for client in (one, two):
            await client.say(GET)
            assert (await client.answer())[0] == 200
        async with wire(served) as third:
            await third.say(GET)
            assert await third.refusal() == (503, "too_many_connections")
            assert await third.is_over()
        await one.say(GET)
        assert (await one.answer())[0] == 200


async def test_no_response_names_the_server_software(patient: Served) -> None:
    """SEC-20."""
    async with wire(patient) as client:
        await client.say(GET)
        _, headers, _ = await client.answer()
        assert "server" not in headers
        assert "x-powered-by" not in headers


async def test_no_cross_origin_request_is_allowed(patient: Served) -> None:
    """SEC-38: CORS is off: there is no such header, and a preflight is not answered."""
    ask = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    for answer in (
        await patient.http.options("/jobs", headers=ask),
        await patient.http.get("/jobs", headers=ask),
        await patient.http.get("/docs", headers=ask),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert (await patient.http.options("/jobs", headers=ask)).status_code == 405


# -- start and stop ---------------------------------------------------------------------------------------------


def test_a_port_in_use_is_an_error_message() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Invalid, match=f"cannot listen on 127.0.0.1 port {port}: the port is in use") as refused:
            listen("127.0.0.1", port)
        assert refused.value.code == "cannot_listen"


def test_the_next_free_port_is_used_on_request() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with listen("127.0.0.1", port, ports=20) as found:
            assert port < found.getsockname()[1] < port + 20


@pytest.mark.parametrize(
    ("host", "port", "says"),
    [
        ("no such host.invalid", 0, "unknown host"),
        ("192.0.2.1", 0, "does not have that address"),
        ("127.0.0.1", 70_000, "invalid port 70000"),
    ],
)
def test_an_invalid_listen_address_is_an_error_message(host: str, port: int, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        listen(host, port)


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    try:
        listening = listen("::1", 0)
    except Invalid:
        pytest.skip("this machine has no IPv6 address")
    with listening:
        assert address(listening).startswith("http://[::1]:")


async def test_waiting_requests_end_when_the_server_stops(fresh_sqlite_url: str) -> None:
    """A claim that waits answers that there is nothing, a stream ends, and neither holds up the stop."""
    async with served_at(fresh_sqlite_url) as served:
        worker = await served.register()
        claim = {"jobTypes": ["none"], "waitSeconds": 30}
        waiting = asyncio.create_task(
            served.http.post("/api/worker/claim", json=claim, headers=bearer(worker["apiKey"]))
        )
        job = await served.engine.create(NewJob(type="a"))
        async with served.http.stream("GET", f"/jobs/{job.id}/events") as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            began = asyncio.get_running_loop().time()
            served.server.stop()
            async with asyncio.timeout(60):
                assert (await waiting).status_code == 204
                async for _ in lines:
                    continue
            assert asyncio.get_running_loop().time() - began < 20
        assert (await served.http.get("/readyz")).status_code == 503
