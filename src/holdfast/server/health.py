"""Is this server alive, is it ready, and what does it see?"""

from __future__ import annotations

from holdfast.server.route import Asked, Reply
from holdfast.server.server import Server


async def livez(server: Server, asked: Asked) -> Reply:
    return Reply(200, {"status": "ok"})
