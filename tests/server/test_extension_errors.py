"""Mistakes of an extension's code: the client is told that something went wrong, the log what and whose it is."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from holdfast.errors import NotFound
from holdfast.server import app as core
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route, mount
from holdfast.server.http.endpoint import internal_error, send_failure
from holdfast.server.http.route import Reply
from holdfast.server.http.starlette_response import ResponseSender
from holdfast.server.openapi.document import document
from tests.clocks import WholeClock
from tests.server.steps import Served, serving

NAME = "of extension broken"


@dataclass
class Point:
    x: int


class Place(TypedDict):
    where: str


async def fails() -> AsyncIterator[bytes]:
    raise ZeroDivisionError
    yield b""


async def fails_later() -> AsyncIterator[bytes]:
    yield b"x" * 100_000
    raise ZeroDivisionError


async def cancels_itself() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


def exits() -> None:
    raise SystemExit(1)


MISTAKES: dict[str, Callable[[], Any]] = {
    "another type": lambda: 3,
    "nothing": lambda: None,
    "no json": lambda: Point(object()),  # type: ignore[arg-type]
    "no json in a reply": lambda: Reply(200, {"a": object()}),
    "no status": lambda: Reply(20, {}),
    "headers as text": lambda: Reply(200, {}, (("a", "b"),)),  # type: ignore[arg-type]
    "a header of two lines": lambda: Reply(200, {}, ((b"a", b"b\r\nc: d"),)),
    "a response's header of two lines": lambda: PlainTextResponse("", headers={"a": "b\r\nc: d"}),
    "no file": lambda: FileResponse("/nowhere/at/all"),
    "a coroutine": cancels_itself,
    "it exits": exits,
    "it raises": lambda: 1 // 0,
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_an_exception_in_a_handler_is_a_problem_response_and_a_log_line(
    broken: Served, mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await broken.http.get(f"/broken/{mistake}")
    told = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert (told["code"], told["requestId"]) == ("internal_error", answer.headers["x-request-id"])
    assert told["detail"] == "internal error; the server log has the details under this request id"
    assert f"request {told['requestId']} (GET /broken/{{mistake}} {NAME}) failed" in caplog.text
    assert (await broken.http.get("/livez")).status_code == 200


@pytest.mark.parametrize("stream", [fails, fails_later])
async def test_an_interrupted_response_is_recognized_by_the_client(
    broken: Served, stream: Callable[[], AsyncIterator[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await broken.http.get(f"/broken/{stream.__name__}")
    assert f"(GET /broken/{{mistake}} {NAME}) failed after the response had started" in caplog.text


async def mistaken(request: Request) -> Any:
    mistake = request.path["mistake"]
    if mistake in (stream.__name__ for stream in (fails, fails_later)):
        return StreamingResponse(fails() if mistake == "fails" else fails_later())
    made = MISTAKES[mistake]()
    return await made if isinstance(made, Awaitable) else made


# -- what goes in and comes out -----------------------------------------------------------------------------------


async def point(request: Request) -> Any:
    return {"where": f"at {request.body.x}"}


async def test_a_route_can_take_a_dataclass_and_return_a_typed_dict(broken: Served) -> None:
    assert (await broken.http.post("/point", json={"x": 1})).json() == {"where": "at 1"}
    assert (await broken.http.get("/docs")).status_code == 200
    for wrong, code in ((b"", "malformed_json"), (b'{"x": "a"}', "invalid_body"), (b"{}", "invalid_body")):
        answer = await broken.http.post("/point", content=wrong)
        assert answer.json()["code"] == code, answer.text


class Search(msgspec.Struct):
    state: Annotated[str, msgspec.Meta(description="Only points there.")] | None = None
    limit: int | str | None = None


class Named(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(description="What the point is called.")]
    payload: str = ""


def test_the_description_of_a_field_comes_from_its_own_type() -> None:
    words = {"scope": None, "answers": {204: None}}
    route = extension_route("broken", "POST", "/point/{name}", point, query=Search, body=Named, **words)  # type: ignore[arg-type]
    described = document([*core.ROUTES, route])
    parameters = described["paths"]["/point/{name}"]["post"]["parameters"]
    assert {each["name"]: each["description"] for each in parameters} == {
        "name": "",
        "state": "Only points there.",
        "limit": "",
    }
    fields = described["components"]["schemas"]["Named"]["properties"]
    assert fields["name"]["description"] == "What the point is called."
    assert "description" not in fields["payload"]


# -- time ---------------------------------------------------------------------------------------------------------


async def test_a_handler_that_blocks_the_event_loop_is_named(
    fresh_sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = WholeClock()

    async def blocks(request: Request) -> None:
        await asyncio.sleep(0)
        clock.advance(1.5)

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        clock.advance(2)
        await PlainTextResponse("late")(scope, receive, send)

    routes = [extension_route("broken", "POST", "/slow", blocks, scope=None)]
    mounts = [mount("broken", "/slow-app", asgi, scope=None)]
    async with serving(fresh_sqlite_url, clock=clock, routes=routes, mounts=mounts) as served:
        assert (await served.http.post("/slow")).status_code == 200
        assert (await served.http.get("/slow-app")).text == "late"
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    for name, seconds in (("POST /slow", 1.5), ("the mount /slow-app", 2.0)):
        told = f"extension broken: {name} blocked the event loop for {seconds} s"
        assert any(line.startswith(told) for line in said), said


# -- mounted applications -----------------------------------------------------------------------------------------


async def raises(request: StarletteRequest) -> Response:
    raise ZeroDivisionError("a secret of ours")


async def missing(request: StarletteRequest) -> Response:
    raise NotFound("no such point", code="note_not_found")


async def meant(request: StarletteRequest) -> Response:
    return PlainTextResponse("sorry", 500)


async def unfinished(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})


async def canceled(scope: Any, receive: Any, send: Any) -> None:
    await unfinished(scope, receive, send)
    raise asyncio.CancelledError


async def silent(scope: Any, receive: Any, send: Any) -> None:
    await receive()


async def long(scope: Any, receive: Any, send: Any) -> None:
    """Longer than the mount's seconds, once it has begun."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await asyncio.sleep(0.2)
    await send({"type": "http.response.body", "body": b"done"})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse(scope["path"])(scope, receive, send)


FRAMEWORK = Starlette(
    debug=True,
    routes=[StarletteRoute("/raises", raises), StarletteRoute("/missing", missing), StarletteRoute("/meant", meant)],
)


@pytest.mark.parametrize("path", ["/app/raises", "/silent"])
async def test_an_exception_in_a_mounted_application_shows_no_internals(
    broken: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Frameworks answer with a page of their own, which may show everything."""
    answer = await broken.http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert NAME in caplog.text


async def test_an_error_response_of_a_mounted_application_is_unchanged(broken: Served) -> None:
    assert (await broken.http.get("/app/missing")).json()["code"] == "note_not_found"
    told = await broken.http.get("/app/meant")
    assert (told.status_code, told.text) == (500, "sorry")
    assert (await broken.http.get("/long")).text == "done", "its seconds are for the beginning of an answer"
    with pytest.raises(httpx2.RemoteProtocolError):
        await broken.http.get("/unfinished")


async def test_metrics_count_a_canceled_response_of_a_mounted_application_as_closed_by_the_client(
    broken: Served,
) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await broken.http.get("/canceled")
    counted = [labels for labels in broken.server.metrics.requests.values if "/canceled/*" in labels]
    assert counted == [("GET", "/canceled/*", "499")]


async def test_a_failed_response_is_counted_before_its_error_is_sent() -> None:
    happened: list[object] = []

    async def send(message: Any) -> None:
        happened.append(message["type"])

    sender = ResponseSender({}, send, "request", happened.append)
    await send_failure(ValueError(), internal_error(), sender, None, "GET /points")
    assert happened == [500, "http.response.start", "http.response.body"]


@pytest.mark.parametrize(
    ("path", "status", "seen"),
    [
        ("/echo", 200, b"/echo"),
        ("/echo/%2e%2e/jobs", 200, b"/echo/../jobs"),
        ("/echo/..%2f..%2fetc", 200, b"/echo/../../etc"),
        ("/echo//jobs", 200, b"/echo//jobs"),
        ("//echo", 404, b"route_not_found"),
        ("/jobs/%2e%2e/echo", 404, b"route_not_found"),
        ("/ECHO", 404, b"route_not_found"),
        ("/echoes", 404, b"route_not_found"),
    ],
)
async def test_no_path_escapes_or_bypasses_a_mount(broken: Served, path: str, status: int, seen: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(broken.url.rpartition(":")[2]))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), head
    assert seen in body


@pytest.fixture
async def broken(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    def route(method: str, path: str, handler: Any, **words: Any) -> Any:
        return extension_route("broken", method, path, handler, scope=None, **words)

    routes = [
        route("GET", "/broken/{mistake}", mistaken, answers={200: Point}),
        route("POST", "/point", point, body=Point, answers={200: Place}),
        route("GET", "/points", point, query=Search),
    ]
    apps = {"/app": FRAMEWORK, "/unfinished": unfinished, "/canceled": canceled, "/silent": silent, "/echo": echo}
    mounts = [mount("broken", path, app, scope=None) for path, app in apps.items()]
    mounts.append(mount("broken", "/long", long, scope=None, seconds=0.05))
    async with serving(fresh_sqlite_url, routes=routes, mounts=mounts) as served:
        yield served
