"""The worker API: claim, and what a worker says about what it holds. Every write carries its lease token."""

from __future__ import annotations

from holdfast.server.route import Asked, Reply
from holdfast.server.server import Server


async def register(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def heartbeat(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def claim(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def progress(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def complete(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def fail(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def release(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def reject(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError


async def report(server: Server, asked: Asked) -> Reply:
    raise NotImplementedError
