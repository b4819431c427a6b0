"""A whole server on a free port of this machine, and somebody to ask it things."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.model.hosts import is_loopback
from holdfast.model.key import NewKey
from holdfast.server.extending import Mount
from holdfast.server.route import Route
from holdfast.server.server import Server
from holdfast.server.serving import served
from holdfast.settings import Settings

SECRET = "an admin secret that only tests know"
ADMIN = {"X-Admin-Secret": SECRET}


@dataclass
class Served:
    url: str
    server: Server
    http: httpx2.AsyncClient  # with the server's address as its base, and no key

    @property
    def engine(self) -> Engine:
        return self.server.engine

    async def register(self, **body: Any) -> dict[str, str]:
        """A worker's id, and the header with its key."""
        answer = await self.http.post("/api/worker/register", json=body, headers=ADMIN)
        assert answer.status_code == 201, answer.text
        return answer.json()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def client_key(served: Served, tenant: str) -> str:
    return (await served.engine.create_key(NewKey(tenant=tenant))).text


@asynccontextmanager
async def serving(
    url: str,
    *,
    host: str = "127.0.0.1",
    clock: Clock | None = None,
    lifecycles: Lifecycles | None = None,
    connections_max: int | None = None,
    routes: Sequence[Route] = (),
    mounts: Sequence[Mount] = (),
    **settings: Any,
) -> AsyncIterator[Served]:
    """On the database of that URL. Several may stand before one database."""
    from holdfast.assembly import open_server

    settings = {"admin_secret": SECRET, **settings}
    async with (
        open_server(
            Settings(database_url=url, **settings),
            lifecycles=lifecycles or Lifecycles(),
            clock=clock or Clock(),
            ids=Ids(),
            open_to_anybody=is_loopback(host),
        ) as server,
        served(server, host=host, port=0, connections_max=connections_max, routes=routes, mounts=mounts) as address,
        httpx2.AsyncClient(base_url=address, timeout=60) as http,
    ):
        yield Served(address, server, http)
