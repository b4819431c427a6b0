"""A complete response is one write, with headers that cannot end early."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.server.http.reply import CLOSE, send_reply
from holdfast.server.http.route import Reply


class Cycle:
    """What the server keeps of one request, without a socket."""

    def __init__(self, method: str = "GET") -> None:
        self.scope = {"method": method}
        self.flow = SimpleNamespace(write_paused=False)
        self.default_headers = [(b"date", b"today")]
        self.disconnected, self.keep_alive = False, True
        self.response_started = self.response_complete = self.waiting_for_100_continue = False
        self.written: list[bytes] = []
        self.done: list[str] = []
        self.transport = SimpleNamespace(write_whole=self.written.append, close=lambda: self.done.append("close"))
        self.message_event = SimpleNamespace(set=lambda: self.done.append("event"))

    def on_response(self) -> None:
        self.done.append("response")

    async def send(self, message: Any) -> None:
        raise AssertionError(f"no message is sent, but {message}")


async def test_head_and_body_are_one_write() -> None:
    cycle = Cycle()
    await send_reply(Reply(202, {"a": 1}, ((b"location", b"/jobs/1"),)), cycle.send, "r-1")
    [response] = cycle.written
    head, _, body = response.partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 202 Accepted"
    assert sorted(head.split(b"\r\n")[1:]) == [
        b"cache-control: no-store",
        b"content-length: 7",
        b"content-type: application/json",
        b"date: today",
        b"location: /jobs/1",
        b"x-content-type-options: nosniff",
        b"x-request-id: r-1",
    ]
    assert cycle.done == ["event", "response"]


async def test_a_response_to_head_has_the_length_of_the_body_without_the_body() -> None:
    cycle = Cycle("HEAD")
    await send_reply(Reply(200, b"text"), cycle.send, "r-1")
    assert cycle.written[0].endswith(b"content-length: 4\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_has_no_length(status: int) -> None:
    cycle = Cycle()
    await send_reply(Reply(status), cycle.send, "r-1")
    assert b"content-" not in cycle.written[0].replace(b"x-content-type-options", b"")


async def test_a_connection_that_is_to_be_closed_says_so_once() -> None:
    asked, told = Cycle(), Cycle()
    asked.keep_alive = False
    await send_reply(Reply(200, b""), asked.send, "r-1")
    await send_reply(Reply(503, b"", (CLOSE,)), told.send, "r-1")
    for cycle in (asked, told):
        assert cycle.written[0].count(b"connection: close\r\n") == 1
        assert "close" in cycle.done


async def test_caching_is_as_the_handler_says() -> None:
    cycle = Cycle()
    await send_reply(Reply(200, b"", ((b"cache-control", b"no-cache"),)), cycle.send, "r-1")
    assert cycle.written[0].count(b"cache-control") == 1


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb", b"a\0b"])
async def test_a_control_character_in_a_header_is_refused(value: bytes) -> None:
    cycle = Cycle()
    with pytest.raises(ValueError, match="control character"):
        await send_reply(Reply(200, b"", ((b"location", value),)), cycle.send, "r-1")
    assert not cycle.written


async def test_nothing_is_written_to_a_client_that_has_left() -> None:
    cycle = Cycle()
    cycle.disconnected = True
    await send_reply(Reply(200, b""), cycle.send, "r-1")
    assert not cycle.written
