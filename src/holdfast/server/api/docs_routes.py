"""Routes of the API documentation: the OpenAPI document and an HTML page that works offline."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from importlib.resources import files

import msgspec

from holdfast.server.http.route import JSON, HttpRequest, Reply
from holdfast.server.openapi.docs_page import SERVER, STYLE, page
from holdfast.server.openapi.document import document
from holdfast.server.state import ServerState

CODES = "codes.json"  # written from docs/reference/errors.md by `python -m tests.docs.generate`
_HTML = b"text/html; charset=utf-8"
_HOST = re.compile(rb"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_STYLE_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest())
_PAGE_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'sha256-" + _STYLE_HASH + b"'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
)


async def root(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(307, headers=((b"location", b"/docs"),))


async def openapi(server: ServerState, request: HttpRequest) -> Reply:
    return _unless_cached(request, _openapi(server), JSON)


async def docs(server: ServerState, request: HttpRequest) -> Reply:
    """Examples use the host name of the request."""
    here = _address(request)
    text = _docs(server) if here is None else _docs(server).replace(SERVER.encode(), here)
    return _unless_cached(request, text, _HTML, _PAGE_HEADERS)


def _address(request: HttpRequest) -> bytes | None:
    host = request.headers.get(b"host", b"")
    scheme = b"https" if request.headers.get(b"x-forwarded-proto") == b"https" else b"http"
    return scheme + b"://" + host if _HOST.fullmatch(host) else None


def _unless_cached(
    request: HttpRequest, body: bytes, content_type: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Reply:
    etag = b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'
    headers = (*headers, (b"etag", etag), (b"cache-control", b"no-cache"))
    if etag in request.headers.get(b"if-none-match", b""):
        return Reply(304, headers=headers)
    return Reply(200, body, headers, content_type)


def _openapi(server: ServerState) -> bytes:
    if "openapi" not in server.pages:
        server.pages["openapi"] = msgspec.json.encode(document(server.routes, server.about_scopes))
    return server.pages["openapi"]


def _docs(server: ServerState) -> bytes:
    if "docs" not in server.pages:
        server.pages["docs"] = page(msgspec.json.decode(_openapi(server)), codes()).encode()
    return server.pages["docs"]


def codes() -> dict[str, tuple[str, str]]:
    """Meaning and remedy of each error code."""
    text = files("holdfast.server").joinpath(CODES).read_bytes()
    return msgspec.json.decode(text, type=dict[str, tuple[str, str]])
