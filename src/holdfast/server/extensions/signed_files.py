"""An ASGI application that serves the signed URLs of directory storage; mount it at `base_url`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.server.extensions.responses import stored
from holdfast.storage import Storage
from holdfast.storage.backend import CONTENT_TYPE


class SignedFiles:
    """`ext.mount("/files", SignedFiles(storage), scope=None, body_max=2**30, seconds=3600)`. The URL is the permission:
    it needs no key, and it allows one method on one object."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        key = scope["path"].removeprefix(scope["root_path"]).removeprefix("/")
        self._storage.verify(request.query_params.get("token", ""), request.method, key)
        response = await self._answer(request, key)
        await response(scope, receive, send)

    async def _answer(self, request: Request, key: str) -> Response:
        if request.method == "PUT":
            return await self._put(request, key)
        if request.method == "DELETE":
            await self._storage.delete(key)
            return Response(status_code=204)
        return stored(await self._storage.get(key))

    async def _put(self, request: Request, key: str) -> Response:
        announced = request.headers.get("content-length", "")
        info = await self._storage.put(
            key,
            _chunks(request),
            content_type=request.headers.get("content-type", CONTENT_TYPE),
            size=int(announced) if announced.isdecimal() else None,
        )
        return Response(status_code=200, headers={"etag": info.etag})


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        if chunk:
            yield chunk
