"""Forms that a route reads part by part while they arrive."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from holdfast.errors import Invalid, Malformed
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route
from holdfast.server.http.multipart import HEADER_BYTES_MAX, FormParts
from holdfast.server.http.route import Reply
from holdfast.storage import open_storage
from tests.server.steps import Served, serving
from tests.server.test_metrics import scraped
from tests.worker.in_process import until

LIMIT = 6_000_000
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}
END = b"--b--\r\n"


def part(head: str, content: bytes = b"") -> bytes:
    return f"--b\r\n{head}\r\n\r\n".encode() + content + b"\r\n"


def field(name: str, content: bytes = b"") -> bytes:
    return part(f'content-disposition: form-data; name="{name}"', content)


def file(name: str, content: bytes, content_type: str = "image/png", filename: str = "a.png") -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
    return part(f"{disposition}\r\nContent-Type: {content_type}", content)


async def measured(chunks: AsyncIterator[bytes]) -> list[Any]:
    digest, size = hashlib.sha256(), 0
    async for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return [size, digest.hexdigest()]


def described(content: bytes) -> list[Any]:
    return [len(content), hashlib.sha256(content).hexdigest()]


async def take(request: Request) -> Reply:
    """Any body: a form in parts, anything else as it is."""
    if request.content_type != "multipart/form-data":
        return Reply(200, [request.content_type, *await measured(request.stream())])
    found = []
    async for each in request.parts(max_parts=2000):
        told = await each.text() if each.filename is None else await measured(each)
        found.append([each.name, each.filename, each.content_type, told])
    return Reply(200, found)


async def names(request: Request) -> Reply:
    return Reply(200, [each.name async for each in request.parts(max_parts=3)])


async def first_chunks(request: Request) -> Reply:
    """Decides about a file when its first bytes are here."""
    async for each in request.parts():
        if await anext(each) != b"":
            raise Invalid(f"{each.name} is refused", code="image_too_large")
    return Reply(200, [])


async def keeps_parts(request: Request) -> Reply:
    kept = [each async for each in request.parts()]
    return Reply(200, [await each.text() for each in kept])


def route(path: str, handler: Any, body: str = "*/*", body_max: int = LIMIT) -> Any:
    words: dict[str, Any] = {"body": body, "answers": {200: "application/json"}, "body_max": body_max}
    return extension_route("forms", "POST", f"/forms/{path}", handler, scope=None, **words)


@pytest.fixture
async def forms(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    routes = [
        route("take", take),
        route("names", names, "multipart/form-data"),
        route("first", first_chunks, body_max=2**30),
        route("kept", keeps_parts),
    ]
    async with serving(fresh_sqlite_url, routes=routes) as served:
        yield served


async def posted(forms: Served, path: str, content: Any, headers: dict[str, str] = MULTIPART) -> httpx2.Response:
    return await forms.http.post(f"/forms/{path}", content=content, headers=headers)


async def test_fields_and_files_are_read_while_they_arrive(forms: Served) -> None:
    big = bytes(range(256)) * 20_000
    files = {"small": ("a.txt", b"a" * 10, "Text/Plain; charset=utf-8"), "large": ("b.bin", big)}
    answer = await forms.http.post("/forms/take", data={"title": "é"}, files=files)
    assert answer.json() == [
        ["title", None, "", "é"],
        ["small", "a.txt", "text/plain", described(b"a" * 10)],
        ["large", "b.bin", "application/octet-stream", described(big)],
    ]
    nothing = await posted(forms, "take", file("none", b"", filename="") + END)  # what a browser sends for no file
    assert nothing.json() == [["none", "", "image/png", described(b"")]]


async def test_a_route_reads_a_form_or_a_raw_body(forms: Served) -> None:
    for said, expected in (("Image/PNG; q=1", "image/png"), ("", "")):
        answer = await posted(forms, "take", b"x" * 300_000, {"content-type": said})
        assert answer.json() == [expected, *described(b"x" * 300_000)]
    answer = await posted(forms, "names", b"x", {"content-type": "image/png"})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_what_is_not_read_of_a_part_is_skipped(forms: Served) -> None:
    content = field("a", b"1" * 200_000) + file("b", b"\r\n--bx" * 50_000) + field("c") + END
    assert (await posted(forms, "names", content)).json() == ["a", "b", "c"]


async def test_a_part_is_read_before_the_next_one(forms: Served) -> None:
    assert (await posted(forms, "kept", END)).json() == []
    answer = await posted(forms, "kept", field("a") + field("b") + END)
    assert answer.json()["code"] == "internal_error", "a mistake of the handler"


@pytest.mark.parametrize(
    ("said", "filename"),
    [
        ("a%22b.png", "a%22b.png"),
        (r"a\"b.png", 'a"b.png'),
        ("a;b=c.png", "a;b=c.png"),
        ("größe 图.png", "größe 图.png"),
        (r"C:\pictures\a.png", "a.png"),
        ("../../etc/passwd", "../../etc/passwd"),
    ],
)
async def test_file_names_are_as_the_client_sent_them(forms: Served, said: str, filename: str) -> None:
    """Browsers escape a quote as %22, curl with a backslash; both send UTF-8."""
    answer = await posted(forms, "take", file("ä", b"x", filename=said) + END)
    assert answer.json() == [["ä", filename, "image/png", described(b"x")]]


async def test_a_file_name_in_another_encoding_does_not_prevent_the_upload(forms: Served) -> None:
    answer = await posted(forms, "take", file("a", b"x", filename="é.png").replace("é".encode(), b"\xe9") + END)
    assert answer.json()[0][1] == "\ufffd.png"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it ends before its last boundary"),
        (b"--other\r\n\r\n", "a boundary or a header of a part is invalid"),
        (b"--b\r\nno colon", "a boundary or a header of a part is invalid"),
        (part("x: y"), "a part has no name in its content-disposition"),
        (part('content-disposition: form-data; filename="a"'), "a part has no name in its content-disposition"),
        (field("a", b"1"), "it ends before its last boundary"),
        (field("a", b"1") + END[:-3], "it ends before its last boundary"),
        (field("a", b"1" * 65_537) + END, "the field 'a' is longer than 65536 bytes"),
        (field("a", b"\xff") + END, "the field 'a' is not valid UTF-8"),
        (field("a" * 100, b"\xff") + END, "is not valid UTF-8"),
        (field("a") * 2001 + END, "it has more than 2000 parts"),
        (field("a" * HEADER_BYTES_MAX) + END, ""),
        (part("\r\n".join(f"x-{n}: y" for n in range(10_000))) + END, ""),
    ],
)
async def test_a_malformed_form_is_rejected(
    forms: Served, content: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await posted(forms, "take", content)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_form"), answer.text
    assert why in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 200
    assert not [record for record in caplog.records if record.name.startswith("python_multipart")]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "its content-type has no boundary"),
        ("; boundary=", "its content-type has no boundary"),
        (f"; boundary={'b' * 300}", "its boundary is too long"),
    ],
)
async def test_a_form_without_a_usable_boundary_is_rejected(forms: Served, said: str, why: str) -> None:
    answer = await posted(forms, "take", field("a") + END, {"content-type": f"multipart/form-data{said}"})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_form")
    assert why in answer.json()["detail"]


async def test_a_form_is_limited_in_size_and_parts(forms: Served) -> None:
    assert len((await posted(forms, "take", field("a", b"1") * 2000 + END)).json()) == 2000
    assert (await posted(forms, "names", field("a") * 4 + END)).json()["code"] == "malformed_form"

    async def too_much() -> AsyncIterator[bytes]:
        yield file("a", b"")[:-2]
        for _ in range(LIMIT // 1_000_000 + 1):
            yield b"x" * 1_000_000

    answer = await posted(forms, "take", too_much())
    assert (answer.status_code, answer.json()["limit"]) == (413, LIMIT)


async def test_what_follows_the_last_boundary_is_ignored(forms: Served) -> None:
    assert (await posted(forms, "names", b"\r\n" + field("a") + END + b"x" * 200_000)).json() == ["a"]


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("kind", ["multipart", "raw"])
async def test_an_upload_that_is_rejected_early_gets_a_response(forms: Served, announced: bool, kind: str) -> None:
    """413 from the first chunk of 50 MB, and the connection is usable afterwards."""
    content = file("a", b"x" * 50_000_000) + END if kind == "multipart" else b"x" * 50_000_000

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 100_000):
            yield content[start : start + 100_000]

    headers = MULTIPART if kind == "multipart" else {"content-type": "image/png"}
    answer = await posted(forms, "first", content if announced else chunks(), headers)
    expected = (413, "image_too_large") if kind == "multipart" else (415, "unsupported_media_type")
    assert (answer.status_code, answer.json()["code"]) == expected
    assert (await posted(forms, "names", field("a") + END)).json() == ["a"]


async def test_the_size_of_each_file_is_measured(forms: Served) -> None:
    content = field("title", b"x" * 100) + file("a", b"a" * 5000, "image/webp; q=1") + file("b", b"b" * 300, "x/odd")
    assert (await posted(forms, "take", content + END)).status_code == 200
    assert (await posted(forms, "names", file("a", b"skipped", "image/gif") + END)).status_code == 200
    await posted(forms, "take", file("a", b"unfinished", "image/bmp")[:-4])
    await posted(forms, "take", b"x" * 2000, {"content-type": "image/avif"})
    samples = (await scraped(forms))["upload_size_bytes"].samples
    told = {one.labels["mime_type"]: one.value for one in samples if one.name.endswith("_sum")}
    assert told == {"image/webp": 5000, "other": 300, "image/gif": 7, "image/avif": 2000}


async def test_an_upload_waits_for_its_handler(fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes no more than its buffers hold."""
    reading, may_go_on, sent = asyncio.Event(), asyncio.Event(), 0
    content = file("a", b"x" * 50_000_000) + END
    flows: list[FlowControl] = []
    pause = FlowControl.pause_reading

    def pause_reading(flow: FlowControl) -> None:
        flows.append(flow)
        pause(flow)

    async def slow(request: Request) -> Reply:
        async for each in request.parts():
            reading.set()
            await may_go_on.wait()
            return Reply(200, await measured(each))
        return Reply(200)

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for start in range(0, len(content), 100_000):
            yield content[start : start + 100_000]
            sent += 100_000

    monkeypatch.setattr(FlowControl, "pause_reading", pause_reading)
    async with serving(fresh_sqlite_url, routes=[route("slow", slow, body_max=2**30)]) as served:
        sending = asyncio.create_task(served.http.post("/forms/slow", content=chunks(), headers=MULTIPART))
        await reading.wait()
        await until(lambda: any(flow.read_paused for flow in flows))
        assert sent < 25_000_000, "what has arrived, and what the buffers of the kernel hold"
        may_go_on.set()
        assert (await sending).json() == described(b"x" * 50_000_000)


async def test_a_client_that_disconnects_ends_the_handler(fresh_sqlite_url: str) -> None:
    ended = asyncio.Event()

    async def waits(request: Request) -> Reply:
        try:
            return await take(request)
        finally:
            ended.set()

    async with serving(fresh_sqlite_url, routes=[route("waits", waits)]) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        head = "POST /forms/waits HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9999\r\n"
        writer.write(f"{head}content-type: {MULTIPART['content-type']}\r\n\r\n".encode() + file("a", b"x" * 100))
        await writer.drain()
        writer.close()
        async with asyncio.timeout(30):
            await ended.wait()
        assert 'route="/forms/waits",status_code="499"' in (await served.http.get("/metrics")).text


async def test_a_part_is_an_object_for_storage() -> None:
    storage = open_storage("memory://")
    async for each in parts_of(file("a", b"x" * 1000) + END, 100):
        info = await storage.put("a", each, content_type=each.content_type)
        assert (info.size, info.content_type) == (1000, "image/png")
    await storage.close()


# -- without a server ---------------------------------------------------------------------------------------------


def parts_of(content: bytes, size: int) -> FormParts:
    chunks = iter([content[start : start + size] for start in range(0, len(content), size)])

    async def next_chunk() -> bytes | None:
        return next(chunks, None)

    return FormParts(MULTIPART["content-type"].encode(), next_chunk, max_parts=100)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
async def test_chunks_may_end_anywhere(size: int) -> None:
    tricky = b"\r\n--\r\n--b-\r\r\n-" * 20
    content = field("é", b"text") + file("b", tricky, filename="ü.png") + file("c", b"") + END
    found = [
        (each.name, each.filename, each.content_type, b"".join([chunk async for chunk in each]))
        async for each in parts_of(content, size)
    ]
    assert found == [
        ("é", None, "", b"text"),
        ("b", "ü.png", "image/png", tricky),
        ("c", "a.png", "image/png", b""),
    ]


async def test_a_part_and_a_form_end_more_than_once() -> None:
    parts = parts_of(field("a", b"1") + END, 10)
    async for each in parts:
        assert await each.text() == "1"
        assert await each.text() == ""
    assert [each async for each in parts] == []


async def test_text_is_limited_as_the_route_decides() -> None:
    async for each in parts_of(field("a", b"12345") + END, 10):
        with pytest.raises(Malformed, match="the field 'a' is longer than 4 bytes"):
            await each.text(max_bytes=4)
