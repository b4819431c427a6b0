"""Routes and mounts of extensions: validation, handler calls, and detection of conflicting paths."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, is_typeddict

import msgspec
from starlette.responses import Response

from holdfast.errors import Invalid
from holdfast.model.key import Scope, extension_of
from holdfast.server.extensions.blocking import warn_if_blocking
from holdfast.server.extensions.request import Request
from holdfast.server.http.route import (
    BODY_BYTES_ALLOWED,
    DEFAULT_LIMIT,
    BodyLimit,
    BodyMax,
    Header,
    HttpRequest,
    HttpResponse,
    Reply,
    Route,
    Stream,
    called_limit,
)
from holdfast.server.http.starlette_response import check_head
from holdfast.server.http.streamed_body import FORM, MULTIPART

if TYPE_CHECKING:
    from holdfast.server.state import ServerState

CORE = "holdfast"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
STATUSES = frozenset(status.value for status in HTTPStatus if status.value >= 200)
SECONDS_MAX = 86_400
FORMS = (MULTIPART, FORM, "*/*")
_WORD = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z][a-z0-9_]*\}")
_TOO_LARGE = re.compile(r"[a-z][a-z0-9_]*_too_large")
_MEDIA_TYPE = re.compile(r"\*/\*|[a-z0-9!#$&^_.+-]+/(\*|[a-z0-9!#$&^_.+-]+)")

ExtensionHandler = Callable[[Request], Awaitable[Any]]


class RouteOptions(TypedDict, total=False):
    """Options of a route besides method, path and scope."""

    about: str  # the OpenAPI summary: one sentence
    body: type | str | None  # a type, or the media type of a streamed body
    form: type | None  # describes the fields of a streamed form; a field of bytes is a file
    query: type | None
    headers: tuple[Header, ...]  # describes those that the handler reads
    answers: Mapping[int, Any] | None  # by status: a type, a media type, or None
    refuses: tuple[int, ...]  # error statuses besides those of every route
    ranges: bool  # it answers with `ranged`, `file` or `stored`: describes their headers and statuses
    location: bool  # its 201 or 202 has a `Location` header
    body_max: BodyMax
    too_large: str  # the error code for a larger body; ends in _too_large
    names_field: bool  # an invalid body is `invalid_field` with the name of the field, not `invalid_body`
    seconds: float | None  # response timeout; None: the default
    watched: bool  # long-running: the request knows when the client disconnects
    hidden: bool  # not in the OpenAPI document


class MountLimits(TypedDict, total=False):
    body_max: BodyMax
    seconds: float | None  # response timeout; None: the default


@dataclass(frozen=True)
class Mount:
    """A mounted ASGI application of an extension, which serves every path below its own."""

    extension: str
    path: str
    app: Any
    scope: str | None
    body_max: BodyMax = DEFAULT_LIMIT.size
    seconds: float | None = None  # response timeout; None: the default

    @property
    def name(self) -> str:
        return f"the mount {self.path}"

    @property
    def log_name(self) -> str:
        return f"{self.name} of extension {self.extension}"

    def body_limit(self) -> BodyLimit:
        size = self.body_max if isinstance(self.body_max, int) else called_limit(self.body_max, self.log_name)
        return DEFAULT_LIMIT._replace(size=size)


def extension_route(
    extension: str,
    method: str,
    path: str,
    handler: ExtensionHandler,
    *,
    scope: str | None,
    settings: Callable[[], Any] = lambda: None,
    **options: Unpack[RouteOptions],
) -> Route:
    """A route whose handler gets a `Request`. If `body` is a media type, the handler streams it.

    `settings`: asked for each request, because they are read after the routes are declared.
    """
    name, answers = f"{method} {path}", options.get("answers")
    if answers is None:
        answers = {200: None}
    chosen: Any = {**options, "answers": answers, "about": options.get("about") or name}
    handle = _HandlerCall(extension, name, handler, answers, settings)
    route = Route(method, path, handle, scope, **chosen, local=False, tag=extension, extension=extension)
    _check(f"extension {extension}: {route.name}", _faults(route))
    return route


def mount(extension: str, path: str, app: Any, *, scope: str | None, **limits: Unpack[MountLimits]) -> Mount:
    mounted = Mount(extension, path, app, scope, **limits)
    _check(f"extension {extension}: mount {path}", _faults_of_mount(mounted))
    return mounted


def _check(where: str, faults: Iterator[str]) -> None:
    if (fault := next(faults, None)) is not None:
        raise Invalid(f"{where}: {fault}", code="invalid_route")


def _faults(route: Route) -> Iterator[str]:
    if route.method not in METHODS:
        yield f"a route takes one of {', '.join(METHODS)}"
    yield from _common_faults(route)
    if strange := [status for status in (*route.answers, *route.refuses) if status not in STATUSES]:
        yield f"{strange[0]!r} is not an HTTP response status"
    if not any(status < 400 for status in route.answers):
        yield "answers has no success status"
    body, query = route.body, route.query
    if any(kind is not None and not isinstance(kind, type | str) for kind in (body, *route.answers.values())):
        yield "a body or a response is a class, a media type or None"
    if isinstance(body, str) and not _MEDIA_TYPE.fullmatch(body):
        yield (
            "the media type of a body is like image/png, image/* or */*, in lower case and without parameters; "
            f"not {body!r}"
        )
    if not _TOO_LARGE.fullmatch(str(route.too_large)):
        yield f"too_large is an error code that ends in _too_large, not {route.too_large!r}"
    if query is not None and not _is_struct(query):
        yield "its query is a msgspec.Struct"
    if route.form is not None and not _is_struct(route.form):
        yield "its form is a msgspec.Struct"
    if route.form is not None and body not in FORMS:
        yield f"a route with a form has a body of {' or '.join(FORMS)}"
    yield from _faults_of_headers(route)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _faults_of_headers(route: Route) -> Iterator[str]:
    if not all(isinstance(header, Header) for header in route.headers):
        yield "headers has items of the type Header"
    names = [header.name.lower() for header in route.described_headers]
    if repeated := [name for name in names if names.count(name) > 1]:
        yield f"the header {repeated[0]} is described twice"


def _faults_of_mount(mounted: Mount) -> Iterator[str]:
    if not callable(mounted.app):
        yield f"an ASGI application is a callable, not {type(mounted.app).__name__}"
    yield from _common_faults(mounted)
    if "{" in mounted.path:
        yield "the path of a mount has no parameters"


def _common_faults(route: Route | Mount) -> Iterator[str]:
    first, *words = route.path.split("/")
    if first or not words or not all(_WORD.fullmatch(word) for word in words):
        yield "a path is /segments/and/{parameters}, without a trailing slash"
    scope, extension = route.scope, route.extension
    if not (scope is None or scope in list(Scope) or extension_of(scope) == extension):
        yield f"its scope is {extension}:verb in lower case, one of the core, or None; not {scope!r}"
    if not callable(route.body_max) and not (type(route.body_max) is int and 0 < route.body_max <= BODY_BYTES_ALLOWED):
        yield "body_max is a number of bytes, up to 1 TiB, or a function that returns it"
    seconds = route.seconds
    if seconds is not None and not (type(seconds) in (int, float) and 0 < seconds <= SECONDS_MAX):
        yield f"seconds is a number above 0 and up to {SECONDS_MAX}"


@dataclass(frozen=True)
class _HandlerCall:
    extension: str
    name: str
    handler: ExtensionHandler
    answers: Mapping[int, Any]
    settings: Callable[[], Any]

    async def _call(self, server: ServerState, request: HttpRequest) -> Any:
        asked, given = Request(server, request, self.settings(), self.extension), None
        try:
            given = await self.handler(asked)
            return given
        finally:
            await asked.close_streams(besides=given)

    async def __call__(self, server: ServerState, request: HttpRequest) -> HttpResponse:
        called = self._call(server, request)
        try:
            given = await warn_if_blocking(called, server.clock, self.extension, self.name)
            return _answer(given, self.answers)
        except _InvalidResponse as wrong:
            raise TypeError(f"extension {self.extension}: {self.name} {wrong}") from wrong.__cause__
        except (asyncio.CancelledError, SystemExit) as error:
            if isinstance(error, SystemExit) or not _is_meant(request):
                raise RuntimeError(f"extension {self.extension}: {self.name} ended itself without an answer") from error
            raise
        finally:
            if request.streamed_body is not None:
                for size, kind in request.streamed_body.uploads:
                    server.metrics.uploaded(size, kind)
                await request.streamed_body.close()


def _is_meant(request: HttpRequest) -> bool:
    """The client disconnected, the timeout passed, or the server is stopping."""
    task = asyncio.current_task()
    return bool(task is not None and task.cancelling()) or (
        request.streamed_body is not None and request.streamed_body.disconnected
    )


class _InvalidResponse(Exception):
    """A handler returned an undeclared response."""


def _answer(given: Any, answers: Mapping[int, Any]) -> HttpResponse:
    """The returned value with the status that is declared for its type."""
    if isinstance(given, Stream | Response):
        return given
    if isinstance(given, Reply):
        check_head(given.status, given.headers)
        return given if given.body is None or isinstance(given.body, bytes) else given._replace(body=_json(given.body))
    fitting = [status for status, kind in answers.items() if _fits(given, status, kind)]
    if not fitting:
        declared = ", ".join(f"{status}: {getattr(kind, '__name__', kind)}" for status, kind in answers.items())
        raise _InvalidResponse(f"returned {type(given).__name__}; it declares {declared}")
    if given is None:
        return Reply(204 if 204 in fitting else fitting[0])
    return Reply(fitting[0], _json(given))


def _fits(given: Any, status: int, kind: Any) -> bool:
    """Other media types than JSON and redirects are Starlette responses."""
    if isinstance(kind, type):
        return isinstance(given, dict if is_typeddict(kind) else kind)
    return status < 300 and (given is None if kind is None else "json" in kind)


def _json(given: Any) -> bytes:
    try:
        return msgspec.json.encode(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise _InvalidResponse(f"returned what is not JSON: {error}") from error


# -- conflicts --------------------------------------------------------------------------------------------------


def together(core: Sequence[Route], routes: Sequence[Route], mounts: Sequence[Mount]) -> tuple[Route, ...]:
    """All routes; two that match the same request are an error that names both."""
    everything = (*core, *routes)
    by_length: dict[int, list[Route]] = defaultdict(list)
    for route in everything:
        alike = by_length[route.path.count("/")]
        for other in sorted(alike, key=lambda one: one.method != route.method):
            if _collide(route, other):
                raise _collision(route, other)
        alike.append(route)
    _check_parameters(everything)
    for one in mounts:
        for route in everything:
            if _is_below(route.path, one.path):
                raise _collision(one, route)
    for first, second in pairwise(sorted(mounts, key=lambda one: f"{one.path}/")):
        if _is_below(second.path, first.path):
            raise _collision(second, first)
    return everything


def _collide(route: Route, other: Route) -> bool:
    """One extension may have `/notes/{id}` and `/notes/search`; two may not, whatever the methods: the static
    path takes every request to `/notes/search`."""
    pairs = list(zip(route.path.split("/"), other.path.split("/"), strict=True))
    if all(one == two or (_is_name(one) and _is_name(two)) for one, two in pairs):
        return route.method == other.method
    return route.extension != other.extension and all(
        one == two or _is_name(one) or _is_name(two) for one, two in pairs
    )


def _check_parameters(routes: Iterable[Route]) -> None:
    """A path segment has one parameter name."""
    named: dict[tuple[str, ...], Route] = {}
    for route in routes:
        words = route.path.split("/")
        for place, word in enumerate(words):
            if not _is_name(word):
                continue
            before = tuple("{}" if _is_name(each) else each for each in words[:place])
            other = named.setdefault(before, route)
            if other.path.split("/")[place] != word:
                raise _collision(route, other, ": one place in the paths has two names")


def _is_name(word: str) -> bool:
    return word.startswith("{")


def _is_below(path: str, mounted: str) -> bool:
    """A parameter matches any segment, also the path of the mount."""
    words, above = path.split("/"), mounted.split("/")
    return len(words) >= len(above) and all(one == two or _is_name(one) for one, two in zip(words, above, strict=False))


def _collision(route: Route | Mount, other: Route | Mount, why: str = "") -> Invalid:
    one, two = (f"{each.name} of {_owner(each)}" for each in (route, other))
    return Invalid(f"{one} collides with {two}{why}", code="duplicate_route")


def _owner(route: Route | Mount) -> str:
    return f"the extension {route.extension}" if route.extension else "the core"


def scopes_of(routes: Iterable[Route | Mount], declared: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """By extension: the scopes that its routes need and those that it declares."""
    found: dict[str, set[str]] = defaultdict(set)
    for route in routes:
        if route.extension and route.scope is not None and not isinstance(route.scope, Scope):
            found[route.extension].add(route.scope)
    for scope in declared:
        found[extension_of(scope) or ""].add(scope)
    return {name: frozenset(scopes) for name, scopes in found.items()}
