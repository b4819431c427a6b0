"""Beyond JSON: bodies that are read while they arrive, forms, files and parts of files, pages, mounted applications."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as StarletteRoute

from benchmarks import upload
from holdfast.model.key import NewKey
from holdfast.server.extensions.mounts import CALLER
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.responses import file, html, ranged, redirect, stored, streamed, tagged_with
from holdfast.server.extensions.routes import extension_route, mount
from holdfast.server.http import streamed_body
from holdfast.server.http.route import Reply
from holdfast.storage import open_storage
from tests.server.steps import Served, bearer, serving
from tests.server.test_metrics import scraped

LIMIT = 3_000_000  # above what routes take unless told otherwise
CONTENT = bytes(range(256)) * 400
BINARY = "application/octet-stream"


async def store(request: Request) -> Reply:
    digest = hashlib.sha256()
    async for chunk in request.stream():
        digest.update(chunk)
    return Reply(200, {"sha256": digest.hexdigest()})


async def form(request: Request) -> Reply:
    fields = await request.form(max_files=2, max_fields=2)
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, str):
            found[name] = value
        else:
            on_disk = value.file._rolled  # type: ignore[attr-defined]
            found[name] = [value.filename, len(await value.read()), on_disk]
    return Reply(200, found)


async def store_nothing(request: Request) -> Reply:
    return Reply(200, {"fields": len(request.body)})


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65_536
        await asyncio.sleep(0)


async def page(request: Request) -> Response:
    return tagged_with(html("<h1>Hello</h1>"), "v1")


async def drawing(request: Request) -> Response:
    return Response(b"<svg/>", media_type="image/SVG+xml; charset=utf-8")


async def elsewhere(request: Request) -> Response:
    return redirect("/media/page")


async def goes_on(request: Request) -> Response:
    return streamed(endless())


async def in_parts(request: Request) -> Response:
    async def part(start: int, end: int) -> AsyncIterator[bytes]:
        for place in range(start, end, 1000):
            yield CONTENT[place : min(place + 1000, end)]

    return ranged(part, len(CONTENT), etag="v1", media_type="video/mp4")


async def nothing_there(request: Request) -> Response:
    return file("/nowhere/at/all")


async def hello(request: StarletteRequest) -> Response:
    caller = request.scope[CALLER]
    return PlainTextResponse(f"{caller.subject} at {request.url.path}, {len(await request.body())} bytes")


async def broken(request: StarletteRequest) -> Response:
    raise ZeroDivisionError


APP = Starlette(
    routes=[StarletteRoute("/hello", hello, methods=["GET", "POST"]), StarletteRoute("/broken", broken)], debug=False
)


@pytest.fixture
async def media(fresh_sqlite_url: str, tmp_path: Path) -> AsyncIterator[Served]:
    path = tmp_path / "clip.bin"
    path.write_bytes(CONTENT)

    async def clip(request: Request) -> Response:
        return file(path, filename="clip é.bin")

    storage = open_storage(tmp_path / "objects")
    await storage.put("clip", CONTENT, content_type="text/plain", headers={"cache-control": "max-age=60"})
    await storage.put("drawing", b"<svg/>", content_type="image/svg+xml; charset=utf-8")

    async def of_storage(request: Request) -> Response:
        return stored(await storage.get(request.path["key"]))

    def route(method: str, path: str, handler: Any, **words: Any) -> Any:
        return extension_route("media", method, f"/media/{path}", handler, scope="media:use", **words)

    routes = [
        route("POST", "store", store, body=BINARY, body_max=LIMIT),
        route("POST", "form", form, body="multipart/form-data", body_max=LIMIT),
        route("POST", "fields", form, body="application/x-www-form-urlencoded", body_max=LIMIT),
        route("POST", "picture", store, body="image/*"),
        route("GET", "page", page, answers={200: "text/html"}),
        route("GET", "drawing", drawing, answers={200: "image/svg+xml"}),
        route("GET", "elsewhere", elsewhere, answers={303: None}),
        route("GET", "endless", goes_on, answers={200: BINARY}),
        route("GET", "parts", in_parts, answers={200: "video/mp4"}),
        route("GET", "clip", clip, answers={200: BINARY}),
        route("GET", "stored/{key}", of_storage, answers={200: BINARY}, refuses=(404,)),
        route("GET", "gone", nothing_there, answers={200: BINARY}, refuses=(404,)),
    ]
    mounts = [mount("media", "/media/app", APP, scope="media:use", body_max=1000)]
    async with serving(fresh_sqlite_url, routes=routes, mounts=mounts) as served:
        yield served
    await storage.close()


# -- bodies -------------------------------------------------------------------------------------------------------


async def pieces(size: int) -> AsyncIterator[bytes]:
    for start in range(0, size, 10_000):
        yield b"x" * min(10_000, size - start)


async def pieces_of(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 600):
        yield content[start : start + 600]


async def sent(media: Served, path: str, size: int, *, announced: bool) -> httpx2.Response:
    content = b"x" * size if announced else pieces(size)
    return await media.http.post(path, content=content, headers={"content-type": BINARY})


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_is_streamed_up_to_the_limit_of_the_route(media: Served, announced: bool) -> None:
    taken = await sent(media, "/media/store", LIMIT, announced=announced)
    assert taken.json() == {"sha256": hashlib.sha256(b"x" * LIMIT).hexdigest()}
    refused = await sent(media, "/media/store", LIMIT + 1, announced=announced)
    assert (refused.status_code, refused.json()["code"], refused.json()["limit"]) == (413, "body_too_large", LIMIT)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_function_may_decide_the_limit_of_a_body(fresh_sqlite_url: str, announced: bool) -> None:
    """As a setting does, asked for each request; the error code is the route's."""
    allowed: Any = 1000
    words: dict[str, Any] = {"scope": None, "body_max": lambda: allowed}
    routes = [
        extension_route("m", "POST", "/m/raw", store, body=BINARY, too_large="image_too_large", **words),
        extension_route("m", "POST", "/m/json", store_nothing, body=dict, too_large="note_too_large", **words),
    ]
    async with serving(fresh_sqlite_url, routes=routes, mounts=[mount("m", "/m/app", APP, **words)]) as served:

        async def status(path: str, size: int, kind: str = BINARY) -> tuple[int, str]:
            content = b'"' + b"x" * (size - 2) + b'"'
            chunks = pieces_of(content)
            answer = await served.http.post(
                f"/m/{path}", content=content if announced else chunks, headers={"content-type": kind}
            )
            return answer.status_code, answer.json()["code"] if answer.status_code >= 400 else ""

        assert await status("raw", 1000) == (200, "")
        assert await status("raw", 1001) == (413, "image_too_large")
        assert await status("json", 1001, "application/json") == (413, "note_too_large")
        assert await status("app/hello", 1001) == (413, "body_too_large")
        allowed = 2000
        assert await status("raw", 2000) == (200, "")
        for wrong in (0, 2**40 + 1, True, "1 MiB"):
            allowed = wrong
            assert await status("raw", 1) == (500, "internal_error")


async def test_a_body_of_another_content_type_is_rejected(media: Served) -> None:
    answer = await media.http.post("/media/store", json={})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_a_slow_upload_times_out(media: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_body, "BODY_SECONDS_MAX", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(media.url.rpartition(":")[2]))
    head = f"POST /media/store HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {BINARY}\r\ncontent-length: 9\r\n\r\n"
    writer.write(head.encode() + b"x")
    answer = await reader.readuntil(b"}")
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body_timeout" in answer


async def test_the_body_of_an_unauthorized_request_is_not_read(media: Served) -> None:
    _, text = await media.engine.keys.create(NewKey())
    answer = await media.http.post("/media/store", content=b"x", headers={"content-type": BINARY, **bearer(text)})
    assert answer.status_code == 403


async def test_large_files_of_a_form_are_spooled_to_disk(media: Served) -> None:
    files = {"small": ("a.txt", b"a" * 10), "large": ("b.bin", b"b" * 2_000_000)}
    answer = await media.http.post("/media/form", data={"title": "x"}, files=files)
    assert answer.json() == {"title": "x", "small": ["a.txt", 10, False], "large": ["b.bin", 2_000_000, True]}


def field(name: str, value: bytes) -> bytes:
    return b'--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)


async def test_upload_sizes_are_measured_by_content_type(media: Served) -> None:
    """R000-55: the whole body, or each file of a form; a kind that nobody knows is not told by name."""
    await sent(media, "/media/store", 3000, announced=False)
    files = {"a": ("a.webp", b"a" * 5000, "image/webp"), "b": ("b.odd", b"b" * 7000, "application/x-made-up")}
    assert (await media.http.post("/media/form", data={"title": "x"}, files=files)).status_code == 200
    await sent(media, "/media/store", LIMIT + 1, announced=True)  # refused: nothing of it was taken
    found = (await scraped(media))["upload_size_bytes"].samples
    told = {
        (one.labels["mime_type"], one.name.rpartition("_")[2]): one.value for one in found if "le" not in one.labels
    }
    sums = {(BINARY, 3000), ("image/webp", 5000), ("other", 7000)}
    assert told == {(kind, "count"): 1 for kind, _ in sums} | {(kind, "sum"): size for kind, size in sums}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"--b\r\nno colon", "malformed_form"),
        (b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n' * 3 + b"--b--\r\n", "malformed_form"),
        (b"x" * (LIMIT + 1), "body_too_large"),
        (field("a", b"1" * 600_000) + field("b", b"1" * 600_000) + b"--b--\r\n", "malformed_form"),
        (field("a", b"1" * 2_000_000) + b"--b--\r\n", "malformed_form"),
        (
            b'--b\r\ncontent-disposition: form-data; name="' + b"a" * 100_000 + b'"\r\n\r\n1\r\n--b--\r\n',
            "malformed_form",
        ),
    ],
)
async def test_an_invalid_form_is_rejected(media: Served, content: bytes, code: str) -> None:
    kind = {"content-type": "multipart/form-data; boundary=b"}
    answer = await media.http.post("/media/form", content=content, headers=kind)
    assert answer.json()["code"] == code


@pytest.mark.parametrize("said", ["", "; boundary=", f"; boundary={'b' * 300}", "; boundary=b; charset=undefined"])
async def test_an_invalid_form_type_is_rejected(media: Served, said: str) -> None:
    kind = {"content-type": f"multipart/form-data{said}"}
    answer = await media.http.post("/media/form", content=field("a", b"1") + b"--b--\r\n", headers=kind)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_form"), answer.text


async def test_the_size_of_a_form_without_files_is_limited(media: Served) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert (await media.http.post("/media/fields", content=b"a=%C3%A9&%FF", headers=kind)).status_code == 200
    answer = await media.http.post("/media/fields", content=b"a=" + b"1" * 1_048_576, headers=kind)
    assert (answer.status_code, answer.json()["limit"]) == (413, 1_048_576)
    answer = await media.http.post("/media/fields", content=b"a=1&b=2&c=3", headers=kind)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_form")


async def test_a_route_can_accept_any_image_type(media: Served) -> None:
    for kind, status in (
        ("image/png", 200),
        ("Image/JPEG; q=1", 200),
        ("imagery/png", 415),
        ("text/html", 415),
        ("", 415),
    ):
        answer = await media.http.post("/media/picture", content=b"x", headers={"content-type": kind})
        assert answer.status_code == status, kind


@pytest.mark.slow
async def test_an_upload_uses_bounded_memory() -> None:
    """1 GiB is for `python -m benchmarks.upload`; what would grow with it shows at 48 MiB."""
    assert (await upload.measure(48 * upload.MIB)).grown < upload.GROWN_MAX


async def test_the_documentation_shows_how_to_send_other_content_types(media: Served) -> None:
    shown = html_text((await media.http.get("/docs")).text)
    assert "Body: application/octet-stream" in shown
    assert "/media/store \\\n  -H 'Authorization: Bearer holdfast_client_...'" in shown
    assert "-H 'Content-Type: application/octet-stream' \\\n  --data-binary @FILE" in shown
    assert "-F 'name=@FILE'" in shown


def html_text(page: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", page))


# -- answers ------------------------------------------------------------------------------------------------------

SIZE = len(CONTENT)
WHOLE = (200, CONTENT, None)
LONG = "9" * 5000  # more digits than `int` reads

PARTS: list[tuple[str | None, tuple[int, bytes, str | None]]] = [
    (None, WHOLE),
    ("bytes=0-99", (206, CONTENT[:100], f"bytes 0-99/{SIZE}")),
    ("bytes=100-", (206, CONTENT[100:], f"bytes 100-{SIZE - 1}/{SIZE}")),
    ("bytes=-100", (206, CONTENT[-100:], f"bytes {SIZE - 100}-{SIZE - 1}/{SIZE}")),
    (f"bytes=-{SIZE * 2}", (206, CONTENT, f"bytes 0-{SIZE - 1}/{SIZE}")),
    (f"bytes=0-{SIZE * 2}", (206, CONTENT, f"bytes 0-{SIZE - 1}/{SIZE}")),
    (f"bytes={SIZE}-", (416, b"", f"bytes */{SIZE}")),
    ("bytes=-0", (416, b"", f"bytes */{SIZE}")),
    ("Bytes=0-99", (206, CONTENT[:100], f"bytes 0-99/{SIZE}")),
    (f"bytes=0-{LONG}", (206, CONTENT, f"bytes 0-{SIZE - 1}/{SIZE}")),
    (f"bytes=-{LONG}", (206, CONTENT, f"bytes 0-{SIZE - 1}/{SIZE}")),
    (f"bytes={LONG}-", (416, b"", f"bytes */{SIZE}")),
    (f"bytes={LONG}-{LONG}", (416, b"", f"bytes */{SIZE}")),
    (f"bytes={'0' * 5000}1-9", (206, CONTENT[1:10], f"bytes 1-9/{SIZE}")),
    (f"bytes={LONG}-1", WHOLE),
    ("bytes=9-1", WHOLE),
    ("bytes=a-b", WHOLE),
    ("lines=1-2", WHOLE),
    ("bytes=0-1,5-6", WHOLE),
]


@pytest.mark.parametrize("path", ["/media/clip", "/media/parts", "/media/stored/clip"])
async def test_a_range_request_returns_the_range(media: Served, path: str) -> None:
    for asked, expected in PARTS:
        headers = {} if asked is None else {"range": asked}
        answer = await media.http.get(path, headers=headers)
        assert (answer.status_code, answer.content, answer.headers.get("content-range")) == expected, asked
        assert answer.headers["content-length"] == str(len(expected[1]))
        assert answer.headers["x-request-id"]
        head = await media.http.head(path, headers=headers)
        assert (head.status_code, head.content) == (expected[0], b"")
        assert head.headers["content-length"] == str(len(expected[1]))


async def test_a_range_outside_of_the_object_is_not_cached(media: Served) -> None:
    """The object has `max-age=60`: a CDN would keep the error for as long."""
    answer = await media.http.get("/media/stored/clip", headers={"range": f"bytes={SIZE}-"})
    assert (answer.status_code, answer.headers["cache-control"]) == (416, "no-store")
    assert not {"etag", "content-type"}.intersection(answer.headers)


async def test_a_range_of_a_changed_object_returns_the_whole_object(media: Served) -> None:
    whole = await media.http.get("/media/clip")
    for condition, status in ((whole.headers["etag"], 206), (whole.headers["last-modified"], 206), ('"other"', 200)):
        answer = await media.http.get("/media/clip", headers={"range": "bytes=0-9", "if-range": condition})
        assert answer.status_code == status
    assert whole.headers["content-disposition"] == "attachment; filename*=utf-8''clip%20%C3%A9.bin"


async def test_an_object_is_served_with_its_headers_and_without_scripts(media: Served) -> None:
    clip = await media.http.get("/media/stored/clip")
    assert (clip.headers["content-type"], clip.headers["cache-control"]) == ("text/plain", "max-age=60")
    known = {"if-none-match": clip.headers["etag"], "if-modified-since": clip.headers["last-modified"]}
    assert (await media.http.get("/media/stored/clip", headers=known)).status_code == 304
    drawing = await media.http.get("/media/stored/drawing")
    assert drawing.headers["content-security-policy"].endswith("; sandbox")
    assert (await media.http.get("/media/stored/none")).json()["code"] == "object_not_found"


@pytest.mark.parametrize("path", ["/media/clip", "/media/page"])
async def test_an_unchanged_object_is_304(media: Served, path: str) -> None:
    etag = (await media.http.get(path)).headers["etag"]
    for known, status in ((etag, 304), (f'"x", W/{etag}', 304), ("*", 304), ('"x"', 200)):
        answer = await media.http.get(path, headers={"if-none-match": known})
        assert (answer.status_code, bool(answer.content)) == (status, status == 200)
        assert (answer.headers["etag"], answer.headers["cache-control"]) == (etag, "no-cache")
    part = await media.http.get(path, headers={"if-none-match": etag, "range": "bytes=0-9"})
    assert (part.status_code, part.content, "content-range" in part.headers) == (304, b"", False)
    told = (await media.http.get("/metrics")).text
    assert f'route="{path}",status_code="304"' in told, "what was sent is counted"


async def test_an_html_response_has_a_strict_content_security_policy(media: Served) -> None:
    answer = await media.http.get("/media/page")
    assert answer.text == "<h1>Hello</h1>"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    drawn = await media.http.get("/media/drawing")
    assert drawn.headers["content-security-policy"].endswith("sandbox"), "a picture may carry scripts"
    moved = await media.http.get("/media/elsewhere")
    assert (moved.status_code, moved.headers["location"]) == (303, "/media/page")


async def test_a_missing_object_is_a_problem_response(media: Served) -> None:
    assert (await media.http.get("/media/gone")).json()["code"] == "file_not_found"


async def test_a_streamed_response_ends_when_the_client_disconnects(media: Served) -> None:
    async with media.http.stream("GET", "/media/endless") as answer:
        async for chunk in answer.aiter_bytes():
            assert chunk
            break
    assert (await media.http.head("/media/endless")).status_code == 200
    assert (await media.http.get("/livez")).status_code == 200


# -- mounted applications -----------------------------------------------------------------------------------------


async def test_a_mounted_application_uses_the_same_authentication(media: Served) -> None:
    _, text = await media.engine.keys.create(NewKey(scopes=["media:use"], subject="alice"))
    answer = await media.http.post("/media/app/hello", content=b"12345", headers=bearer(text))
    assert (answer.status_code, answer.text) == (200, "alice at /media/app/hello, 5 bytes")
    assert answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await media.http.get("/media/app/nothing", headers=bearer(text))).status_code == 404
    _, other = await media.engine.keys.create(NewKey())
    refused = await media.http.get("/media/app/hello", headers=bearer(other))
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert (await media.http.get("/media/app/hello", headers=bearer("gibberish"))).status_code == 401
    metrics = (await media.http.get("/metrics")).text
    assert 'route="/media/app/*",status_code="403"' in metrics


@pytest.mark.parametrize("announced", [True, False])
async def test_a_mounted_application_has_a_body_limit(media: Served, announced: bool) -> None:
    answer = await sent(media, "/media/app/hello", 1001, announced=announced)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_an_error_of_a_mounted_application_shows_no_internals(media: Served) -> None:
    answer = await media.http.get("/media/app/broken")
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    assert answer.headers["x-request-id"]
