"""Serves a mounted ASGI application of an extension with the authentication and limits of the core."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.server.api.metrics import CLIENT_CLOSED
from holdfast.server.extensions.blocking import warn_if_blocking
from holdfast.server.extensions.routes import Mount
from holdfast.server.http.endpoint import ANSWER_SECONDS_MAX, internal_error, request_id_of, send_failure
from holdfast.server.http.request_body import merge_headers
from holdfast.server.http.starlette_response import ResponseSender
from holdfast.server.http.streamed_body import StreamedBody
from holdfast.server.state import ServerState

CALLER = "holdfast.caller"  # in the ASGI scope of the application
HELD_BYTES_MAX = 65_536


class MountedApp:
    def __init__(self, server: ServerState, mount: Mount) -> None:
        self._server, self._mount = server, mount
        self._template = f"{mount.path}/*"
        self._seconds = ANSWER_SECONDS_MAX if mount.seconds is None else mount.seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        began = self._server.clock.monotonic()
        request_id = request_id_of(dict(scope["headers"])) or self._server.request_id()
        sender = ResponseSender(scope, send, request_id)
        status: int | None = None
        try:
            await self._answer(scope, receive, sender)
        except asyncio.CancelledError:  # the client disconnected, or the server is stopping
            status = CLIENT_CLOSED
        except Exception as error:
            answer = error if isinstance(error, HoldfastError) and sender.status is None else internal_error()
            status = await send_failure(error, answer, sender, receive, self._mount.log_name)
        took = self._server.clock.monotonic() - began
        status = status or sender.status or CLIENT_CLOSED
        self._server.metrics.requests.observe(took, scope["method"], self._template, str(status))

    async def _answer(self, scope: Any, receive: Any, send: ResponseSender) -> None:
        headers = merge_headers(scope["headers"])
        source = scope["client"][0] if scope.get("client") else ""
        caller = await self._server.auth.authenticate(headers, source, self._mount.scope, method=scope["method"])
        streamed_body = StreamedBody(receive, headers, media_type="*/*", limit=self._mount.body_limit())
        inner = {**scope, "root_path": scope.get("root_path", "") + self._mount.path, CALLER: caller}
        inner.pop("path_params", None)
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                exchange = _Exchange(streamed_body, send, limit, self._seconds)
                answering = _called(self._mount.app, inner, exchange)
                await warn_if_blocking(answering, self._server.clock, self._mount.extension, self._mount.name)
                await exchange.finish()
        except TimeoutError:
            if not limit.expired():
                raise
            raise OutcomeUnknown(
                f"no response within {self._seconds:g} s; the request may have been applied: repeat it"
            ) from None


class _Exchange:
    """ASGI `receive` and `send` of the application.

    The timeout runs from the last chunk of the body to the start of the response. A 500 response is held back until the
    application returns: frameworks send their own and then raise, and the client gets the problem response instead.
    """

    def __init__(
        self, streamed_body: StreamedBody, send: ResponseSender, limit: asyncio.Timeout, seconds: float
    ) -> None:
        self._streamed_body, self._send, self._limit, self._seconds = streamed_body, send, limit, seconds
        self._held: list[Any] = []
        self._held_bytes = 0

    async def receive(self) -> Any:
        message = await self._streamed_body.message()
        if self._limit.when() is not None:
            self._allow(asyncio.get_running_loop().time() + self._seconds)
        return message

    async def send(self, message: Any) -> None:
        if self._streamed_body.failure is not None and self._send.status is None:
            raise self._streamed_body.failure  # also if the application handles the error
        if message["type"] == "http.response.start":
            self._allow(None)
        if message.get("status") == 500 or self._held:
            self._held.append(message)
            self._held_bytes += len(message.get("body", b""))
            if self._held_bytes <= HELD_BYTES_MAX:
                return
            await self._release()
            return
        await self._send(message)

    def _allow(self, until: float | None) -> None:
        if not self._limit.expired():
            self._limit.reschedule(until)

    async def finish(self) -> None:
        await self._release()
        if not self._send.ended and not self._streamed_body.disconnected:
            raise RuntimeError("the application returned before its response was complete")

    async def _release(self) -> None:
        held, self._held = self._held, []
        for message in held:
            await self._send(message)


async def _called(app: Any, scope: Any, exchange: _Exchange) -> None:
    await app(scope, exchange.receive, exchange.send)
