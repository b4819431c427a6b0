"""The HTTP framework without Holdfast: routes with the same request and response bodies, and no database."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.wire import JobAccepted, JobIntent

_decode = msgspec.json.Decoder(JobIntent).decode
_encode = msgspec.json.Encoder().encode


async def create(request: Request) -> Response:
    intent = _decode(await request.body())
    return Response(_encode(JobAccepted(intent.job_type, "PENDING")), 202, media_type="application/json")


async def get(request: Request) -> Response:
    return Response(_encode(JobAccepted(request.path_params["job_id"], "PENDING")), 200, media_type="application/json")


def main() -> None:
    app = Starlette(routes=[Route("/jobs", create, methods=["POST"]), Route("/jobs/{job_id}", get)])
    config = uvicorn.Config(
        app, port=int(sys.argv[1]), loop="none", http="httptools", ws="none", lifespan="off", log_config=None
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
