"""The upload of a large image, beside a bare endpoint: `python -m benchmarks.image_uploads PORT FILE [--sync]`."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
from contextlib import closing
from pathlib import Path

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HEADERS = {"content-type": "image/bmp"}


class Uploads:
    """A client. Each body is another image: a service must not know it already."""

    def __init__(self, port: int, body: bytearray) -> None:
        self._port, self._body, self._number = port, body, 0

    async def send(self) -> int:
        """The number of bytes."""
        self._number += 1
        self._body[-8:] = self._port.to_bytes(4, "big") + self._number.to_bytes(4, "big")
        await asyncio.to_thread(self._post)
        return len(self._body)

    def _post(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)) as connection:
            connection.request("POST", "/images", self._body, HEADERS)
            answer = connection.getresponse()
            text = answer.read()
        assert answer.status == 202, text


def endpoint(path: Path, *, sync: bool) -> Starlette:
    async def upload(request: Request) -> Response:
        with path.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        return Response(status_code=202, background=BackgroundTask(path.unlink))

    return Starlette(routes=[Route("/images", upload, methods=["POST"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sync", action="store_true", help="sync each file before the response")
    options = parser.parse_args()
    app = endpoint(options.file, sync=options.sync)
    config = uvicorn.Config(
        app, port=options.port, loop="none", http="httptools", ws="none", lifespan="off", log_config=None
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
