"""What clients see of a handler's exception: its class, unless it was raised for them. Operators see all of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import App, Permanent, Reject, Retry
from holdfast.errors import HoldfastError, Refused, StorageDenied, StoreError, Unreachable
from holdfast.settings import Settings
from tests.app.steps import drained
from tests.server.event_reader import watching
from tests.server.steps import ADMIN, Served, serving
from tests.webhooks.steps import sent_to, subscribe
from tests.worker.test_http_source import source_at, working

SECRET = "could not connect to 10.1.2.3:5432 as admin, see /srv/app/secrets.toml"
PURPOSE = {
    "permanent": (Permanent, "E_NO_ADDRESS"),
    "retry": (Retry, "E_LATER"),
    "reject": (Reject, "E_POLICY"),
}
INFRASTRUCTURE: dict[str, tuple[HoldfastError, str]] = {
    "database": (StoreError("the database refused it", full=SECRET), "the database refused it"),
    "storage": (StorageDenied("storage refused it", full=SECRET), "storage refused it"),
    "host": (
        Unreachable("no answer", about="10.1.2.3:5432"),
        "the job failed with an unexpected error (Unreachable)",
    ),
}


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    async with serving(store_url) as served:
        yield served


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))

    @app.job("T", max_attempts=1, errors={TimeoutError: "transient"})
    async def handler(how: str) -> None:
        if how in PURPOSE:
            kind, code = PURPOSE[how]
            raise kind(code, "said to the client")
        if how in INFRASTRUCTURE:
            raise INFRASTRUCTURE[how][0]
        if how == "ours":
            raise Refused("said to the client", code="E_OURS")
        raise (TimeoutError if how == "classified" else ConnectionError)(SECRET)

    yield app
    await app.close()


async def create(served: Served, how: str) -> Any:
    made = await served.http.post("/jobs", json={"jobType": "T", "payload": {"how": how}, "maxAttempts": 1})
    return made.json()["jobId"]


async def test_only_operators_see_the_text_of_an_unexpected_exception(served: Served, app: App) -> None:
    """R001-53: over HTTP, in streams and in webhook messages."""
    webhook = await subscribe(served.engine)
    job = await create(served, "unexpected")
    assert await drained(app) == 1
    seen = await served.http.get(f"/jobs/{job}")
    message = "the job failed with an unexpected error (ConnectionError)"
    assert seen.json()["error"] == {"code": "ConnectionError", "message": message}
    async with watching(served, f"/jobs/{job}/events") as stream:
        told = [said.raw for said in await stream.rest()]
    await served.engine.webhooks.fan_out()
    sent = [delivery.body for delivery in await sent_to(served.engine, webhook)]
    listed = (await served.http.get("/jobs")).text
    assert not any("10.1.2.3" in text or "/srv" in text for text in (seen.text, listed, *told, *sent))
    operators = await served.http.get(f"/api/admin/jobs/{job}", headers=ADMIN)
    assert operators.json()["error"]["message"] == SECRET


async def test_clients_do_not_see_the_text_of_an_exception_in_a_remote_worker(served: Served, app: App) -> None:
    """R001-53."""
    async with source_at(served) as source, working(source, app):
        job = await create(served, "classified")
        await served.http.get(f"/jobs/{job}", headers={"prefer": "wait=60"})
    seen = await served.http.get(f"/jobs/{job}")
    assert seen.json()["error"]["message"] == "the job failed with an unexpected error (TimeoutError)"
    assert SECRET not in seen.text


@pytest.mark.parametrize("how", INFRASTRUCTURE)
async def test_clients_do_not_see_details_of_database_storage_and_network_errors(
    served: Served, app: App, how: str
) -> None:
    """R001-53: errors of the platform that a handler met and did not expect."""
    error, told = INFRASTRUCTURE[how]
    job = await create(served, how)
    assert await drained(app) == 1
    seen = await served.http.get(f"/jobs/{job}")
    assert seen.json()["error"] == {"code": error.code, "message": told}
    assert "10.1.2.3" not in seen.text


@pytest.mark.parametrize("how", [*PURPOSE, "ours"])
async def test_clients_see_the_message_of_an_error_raised_for_them(served: Served, app: App, how: str) -> None:
    job = await create(served, how)
    assert await drained(app) == 1
    seen = (await served.http.get(f"/jobs/{job}")).json()
    code = "E_OURS" if how == "ours" else PURPOSE[how][1]
    assert seen["error"] == {"code": code, "message": "said to the client"}
