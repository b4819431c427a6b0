"""A server on a free loopback port, with an HTTP client."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from holdfast import App
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.lifecycle import Lifecycles
from holdfast.model.key import NewKey
from holdfast.model.loopback import is_loopback
from holdfast.server.extensions.routes import Mount
from holdfast.server.http.route import Route
from holdfast.server.http.server import served
from holdfast.server.state import ServerState
from holdfast.settings import Settings
from holdfast.store.migrate import migrate

SECRET = "an admin secret that only tests know"
ADMIN = {"X-Admin-Secret": SECRET}


@dataclass
class Served:
    url: str
    server: ServerState
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
    return (await served.engine.keys.create(NewKey(tenant=tenant))).text


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
    app: App | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """On the database of that URL. Several may stand before one database. `app`: serve it and its extensions."""
    from holdfast.assembly.engine import AppParts
    from holdfast.assembly.server import open_server

    settings = {"admin_secret": SECRET, **settings}
    parts = AppParts() if app is None else app.parts()
    if app is not None:
        await migrate(url, app.extensions.values())
    async with (
        open_server(
            Settings(database_url=url, **settings),
            replace(parts, lifecycles=lifecycles or parts.lifecycles, clock=clock or Clock(), reference=""),
            allow_local=is_loopback(host),
        ) as server,
        AsyncExitStack() as stack,
    ):
        server.extension_routes = [*server.extension_routes, *routes]
        server.mounts = [*server.mounts, *mounts]
        if app is not None:
            await server.engine.job_types.declare(*(each.job_type for each in app.handlers.values()), app=app.name)
        address = await stack.enter_async_context(served(server, host=host, port=0, connections_max=connections_max))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=60))
        yield Served(address, server, http)
