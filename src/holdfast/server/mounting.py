"""An ASGI application of an extension behind the same door: who asks, how much they send, how long it takes."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.server.arriving import Arriving
from holdfast.server.endpoint import ANSWER_SECONDS_MAX, request_id_of, send_reply
from holdfast.server.extending import Mount
from holdfast.server.held_up import told_if_held_up
from holdfast.server.metrics import HUNG_UP
from holdfast.server.problems import problem
from holdfast.server.reading import in_one_line_each
from holdfast.server.responding import Dressed
from holdfast.server.server import Server

CALLER = "holdfast.caller"  # in the scope that the application sees

log = logging.getLogger(__name__)


class Mounted:
    def __init__(self, server: Server, mount: Mount) -> None:
        self._server, self._mount = server, mount
        self._template = f"{mount.path}/*"
        self._seconds = ANSWER_SECONDS_MAX if mount.seconds is None else mount.seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        began = self._server.clock.monotonic()
        request_id = request_id_of(dict(scope["headers"])) or self._server.request_id()
        dressed = Dressed(scope, send, request_id)
        status = HUNG_UP
        try:
            await self._answer(scope, receive, dressed)
            status = dressed.status or HUNG_UP
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if dressed.status is None:
                reply = problem(self._told(error, request_id), request_id)
                status = reply.status
                await send_reply(reply, send, request_id)
            else:
                status = dressed.status
                log.exception("request %s (%s) failed after its answer had begun", request_id, self._mount.told)
                if not dressed.ended:
                    raise  # so that the client sees that the rest is missing
        took = self._server.clock.monotonic() - began
        self._server.metrics.requests.observe(took, scope["method"], self._template, str(status))

    async def _answer(self, scope: Any, receive: Any, send: Dressed) -> None:
        headers = in_one_line_each(scope["headers"])
        source = scope["client"][0] if scope.get("client") else ""
        caller = await self._server.auth.admit(headers, source, self._mount.scope, method=scope["method"])
        arriving = Arriving(receive, headers, media_type="*/*", limit=self._mount.body_max)
        inner = {**scope, "root_path": scope.get("root_path", "") + self._mount.path, CALLER: caller}
        inner.pop("path_params", None)
        try:
            async with asyncio.timeout(self._seconds):
                answering = self._call(inner, arriving.message, partial(_send, arriving, send))
                await told_if_held_up(answering, self._server.clock, self._mount.extension, self._mount.name)
        except TimeoutError:
            raise OutcomeUnknown(
                f"there was no answer within {self._seconds:g} s; it may have happened: repeat the request"
            ) from None

    async def _call(self, scope: Any, receive: Any, send: Any) -> None:
        await self._mount.app(scope, receive, send)

    def _told(self, error: Exception, request_id: str) -> HoldfastError:
        if isinstance(error, HoldfastError):
            return error
        log.error("request %s (%s) failed", request_id, self._mount.told, exc_info=error)
        return HoldfastError("something went wrong here; the log has it under this id", code="internal_error")


async def _send(arriving: Arriving, send: Dressed, message: Any) -> None:
    """A body that was refused has its answer, whatever the application makes of it."""
    if arriving.failure is not None and send.status is None:
        raise arriving.failure
    await send(message)
