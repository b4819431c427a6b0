"""A client of the admin API that checks the status of each response."""

from dataclasses import dataclass
from typing import Any

from holdfast.engine import Engine
from holdfast.model import Lease, NewJob
from holdfast.model.key import Kind, NewKey
from tests.server.steps import ADMIN, Served, bearer


@dataclass
class Operator:
    served: Served
    headers: dict[str, str]

    async def get(self, path: str, *, status: int = 200, **query: Any) -> Any:
        answer = await self.served.http.get(f"/api/admin{path}", params=query, headers=self.headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, body: dict[str, Any] | None = None, *, status: int = 200, **query: Any) -> Any:
        answer = await self.served.http.post(f"/api/admin{path}", json=body, params=query, headers=self.headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def put(self, path: str, body: dict[str, Any], *, status: int = 200) -> Any:
        answer = await self.served.http.put(f"/api/admin{path}", json=body, headers=self.headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def delete(self, path: str, *, status: int = 200) -> Any:
        answer = await self.served.http.delete(f"/api/admin{path}", headers=self.headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    @property
    def engine(self) -> Engine:
        return self.served.engine


def operator(served: Served) -> Operator:
    """With the admin secret."""
    return Operator(served, ADMIN)


async def with_key(served: Served, *scopes: str, kind: Kind = Kind.ADMIN) -> Operator:
    made = await served.engine.keys.create(NewKey(kind=kind, scopes=scopes))
    return Operator(served, bearer(made.text))


async def started(engine: Engine, **job: Any) -> tuple[str, Lease]:
    """A worker, and a job that it has claimed."""
    worker = (await engine.workers.register()).id
    made = await engine.create(NewJob(**{"type": "render", **job}))
    leases = await engine.claim(worker, limit=100)
    return worker, next(lease for lease in leases if lease.id == made.id)


async def dead(engine: Engine, code: str = "E_DISK", **job: Any) -> str:
    worker, lease = await started(engine, **job)
    await engine.fail(worker, lease.id, lease.token, code, "it is full", permanent=True)
    return lease.id


async def retrying(engine: Engine, **job: Any) -> str:
    worker, lease = await started(engine, **job)
    await engine.fail(worker, lease.id, lease.token, "E_DISK", retry_after_seconds=3600)
    return lease.id
