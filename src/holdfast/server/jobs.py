"""The control plane: hand in a job, ask after it, list, cancel. It records intent and runs nothing."""

from __future__ import annotations

from holdfast.server.route import Asked, Reply
from holdfast.server.server import Server
from holdfast.wire import Body


class JobsQuery(Body):
    status: str | None = None
    job_type: str | None = None
    queue: str | None = None
    tag: str | None = None
    cursor: str | None = None
    limit: int = 50


async def create(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def create_batch(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def get(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def page(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def cancel(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError
