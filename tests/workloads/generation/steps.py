"""The image generation service on a real server, with a worker that a test switches on, and users with keys."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.ids import Ids
from holdfast.model.key import Kind, NewKey
from holdfast.store.migrate import sqlite_path
from holdfast.worker.handler import Isolation
from holdfast.workloads.generation import ext
from holdfast.workloads.generation.service import app
from tests.server.steps import ADMIN, Served, bearer, serving
from tests.worker.in_process import AtWork, until, working

FINAL = ("completed", "rejected", "dead_letter")
BLOCKED = "forbidden-test-word"
START = datetime(2026, 3, 10, 12, 0, 20, tzinfo=UTC)
SMALL = {"width": 64, "height": 64}  # drawn quickly
SCOPES = ("generation:read", "generation:write", "jobs:read", "jobs:create", "jobs:cancel")
# Tables that a server writes at rest, or in which it registers queues and policies before it creates a job.
HOUSEKEEPING = {f"holdfast_{name}" for name in ("sweeps", "extensions", "maintenance", "readers", "lanes", "policies")}
# For tests of what is the same on every database.
ON_SQLITE = pytest.mark.parametrize("store_url", [pytest.param("sqlite", marks=pytest.mark.sqlite)], indirect=True)


@dataclass
class Service:
    """The service as one user sees it: `alice = await service.user("alice")` is the same one with her key."""

    served: Served
    folder: Path
    clock: MovableClock
    database_url: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def http(self) -> httpx2.AsyncClient:
        return self.served.http

    async def user(
        self,
        subject: str | None = None,
        *,
        scopes: tuple[str, ...] = SCOPES,
        tenant: str = "default",
        kind: Kind = Kind.CLIENT,
    ) -> Service:
        """With a new key. From the first one on, nobody else gets in without a key."""
        made = await self.served.engine.keys.create(
            NewKey(kind=kind, tenant=tenant, subject=subject, scopes=scopes or None)
        )
        return replace(self, headers=bearer(made.text))

    def working(self, **config: Any) -> AbstractAsyncContextManager[AtWork]:
        """While it is open, a worker runs the jobs in this process, also those of child processes."""
        return working(app, clock=self.clock, **config)

    async def ask(self, method: str, path: str, **request: Any) -> httpx2.Response:
        headers = {**self.headers, **request.pop("headers", {})}
        return await self.http.request(method, path, headers=headers, **request)

    async def get(self, path: str, **query: Any) -> Any:
        """The body of a 200."""
        answer = await self.ask("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, **request: Any) -> tuple[int, str]:
        """Status and code of what is no success."""
        answer = await self.ask(method, path, **request)
        return answer.status_code, answer.json().get("code", "")

    # -- generations ----------------------------------------------------------------------------------------------

    async def create(self, prompt: str = "a lighthouse", *, key: str | None = None, **body: Any) -> httpx2.Response:
        """Whatever the answer is. A small image, unless the body says otherwise."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.ask("POST", "/generations", json={"prompt": prompt, **SMALL, **body}, headers=headers)

    async def accepted(self, prompt: str = "a lighthouse", **more: Any) -> dict[str, Any]:
        answer = await self.create(prompt, **more)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def rejected(self, prompt: str = "a lighthouse", **more: Any) -> tuple[int, str]:
        """Status and code of a request that is refused."""
        answer = await self.create(prompt, **more)
        return answer.status_code, answer.json().get("code", "")

    async def generation(self, generation_id: str) -> dict[str, Any]:
        return dict(await self.get(f"/generations/{generation_id}"))

    async def ended(self, generation_id: str) -> dict[str, Any]:
        """As it is in its final state."""

        async def is_final() -> bool:
            return (await self.generation(generation_id))["status"] in FINAL

        await until(is_final)
        return await self.generation(generation_id)

    async def made(self, prompt: str = "a lighthouse", **more: Any) -> dict[str, Any]:
        """A generation that has ended, with a worker for this one."""
        accepted = await self.accepted(prompt, **more)
        async with self.working():
            return await self.ended(accepted["generationId"])

    # -- credits --------------------------------------------------------------------------------------------------

    async def credits(self) -> tuple[int, int, int]:
        """(balance, reserved, available)"""
        has = await self.get("/credits")
        return has["balance"], has["reserved"], has["available"]

    async def statement(self) -> list[tuple[str, int]]:
        """(kind, amount) of all entries, the oldest first."""
        entries: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.get("/credits/statement", limit=500, **cursor)
            entries += page["entries"]
            if page["nextCursor"] is None:
                return [(entry["kind"], entry["amount"]) for entry in reversed(entries)]
            cursor = {"cursor": page["nextCursor"]}

    async def grant(self, user: str, amount: int, reason: str = "a test", **more: Any) -> httpx2.Response:
        """By the operator."""
        body = {"user": user, "amount": amount, "reason": reason, **more.pop("body", {})}
        headers = {**ADMIN, **more.pop("headers", {})}
        return await self.http.post("/api/admin/credits/grant", json=body, headers=headers, **more)

    # -- for operators --------------------------------------------------------------------------------------------

    async def audit_lines(self) -> list[dict[str, Any]]:
        """The oldest first, without those that tests cause by making keys."""
        answer = await self.http.get("/api/admin/audit", params={"limit": 500}, headers=ADMIN)
        assert answer.status_code == 200, answer.text
        lines = sorted(answer.json()["lines"], key=lambda line: int(line["seq"]))
        return [line for line in lines if not line["action"].startswith("key.")]

    async def audit(self) -> list[str]:
        """The actions, the oldest first."""
        return [line["action"] for line in await self.audit_lines()]

    def rows(self) -> dict[str, int]:
        """The number of rows of each table that has any, without HOUSEKEEPING."""
        return rows_of(self.database_url)

    def files(self, below: str = "") -> list[str]:
        """The keys of the stored objects."""
        walked = os.walk(self.folder)
        paths = [
            Path(folder, name).relative_to(self.folder).as_posix() for folder, _, names in walked for name in names
        ]
        return sorted(path for path in paths if path.startswith(below) and not path.startswith(".holdfast"))


def rows_of(url: str) -> dict[str, int]:
    if url.startswith("sqlite"):
        connection: Any = sqlite3.connect(sqlite_path(url))
        named = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'holdfast%'"
    else:
        connection = psycopg.connect(url)
        named = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'holdfast%'"
    try:
        names = [name for (name,) in connection.execute(named).fetchall()]
        counted = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    finally:
        connection.close()
    return {name: rows for name, rows in counted.items() if rows and name not in HOUSEKEEPING}


Sets = Callable[..., None]


@pytest.fixture
def generation_settings(monkeypatch: pytest.MonkeyPatch) -> Sets:
    """Sets HOLDFAST_GENERATION_* for this process; the service reads them again."""

    def set_(**settings: object) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"HOLDFAST_GENERATION_{name.upper()}", str(value))
        monkeypatch.setattr(ext, "_read_settings", None)

    return set_


@pytest.fixture
def blocklist(tmp_path: Path, generation_settings: Sets) -> Callable[[str], None]:
    """Sets the words of the operator's block list, by a file of their own: they are in force at once."""

    def write(*words: str) -> None:
        file = tmp_path / f"blocklist {'-'.join(words)}.txt"
        file.write_text("".join(f"{word}\n" for word in words))
        generation_settings(blocklist_file=file)

    return write


@pytest.fixture
def clock() -> MovableClock:
    """Stands at 20 seconds after noon until a test moves it: for the server, the worker and the database."""
    return MovableClock(START)


@asynccontextmanager
async def generation_service(url: str, folder: Path, clock: MovableClock) -> AsyncIterator[Service]:
    with app.override(url, clock, Ids()):
        async with serving(url, app=app, clock=clock) as served:
            yield Service(served, folder, clock, url)
        await app.close()


@pytest.fixture
async def service(
    store_url: str,
    tmp_path: Path,
    generation_settings: Sets,
    clock: MovableClock,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Service]:
    """On each store, without keys: everything is of the user `default`. Settings can be changed at any time. No job
    appears by itself: there is no maintenance."""
    folder = tmp_path / "objects"
    generation_settings(storage_url=str(folder))
    monkeypatch.setattr(ext, "tasks", [])
    thumbnails = replace(app.handlers["GENERATION_THUMBNAIL"], isolation=Isolation.LOOP)
    monkeypatch.setitem(app.handlers, "GENERATION_THUMBNAIL", thumbnails)
    async with generation_service(store_url, folder, clock) as service:
        yield service
