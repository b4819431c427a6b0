"""Live: the event log as server-sent events, of one job or of all, resumable by the id of the last event."""

from __future__ import annotations

from holdfast.server.route import Asked, Reply, Stream
from holdfast.server.server import Server


async def of_job(server: Server, asked: Asked) -> Reply | Stream:
    raise NotImplementedError


async def of_all(server: Server, asked: Asked) -> Reply | Stream:
    raise NotImplementedError


async def for_operators(server: Server, asked: Asked) -> Reply | Stream:
    raise NotImplementedError
