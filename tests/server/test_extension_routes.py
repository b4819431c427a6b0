"""Routes of extensions: the same door, the same answers, the same descriptions as those of the core."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.engine import Filter
from holdfast.errors import HoldfastError, Invalid, NotAcceptable, UnsupportedMedia
from holdfast.model.key import NewKey
from holdfast.server.app import ROUTES as CORE
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route, mount, together
from holdfast.server.http.route import Route
from holdfast.store import Tx
from tests.server import notes_extension as notes
from tests.server.steps import ADMIN, Served, bearer, serving

CONNECTIONS = 10  # of a server


@pytest.fixture
async def noted(store_url: str) -> AsyncIterator[Served]:
    async with serving(store_url, routes=notes.ROUTES) as served:
        await served.engine.store.write(lambda tx: tx.all(notes.TABLE))
        yield served


async def stored(served: Served) -> list[tuple[str, str]]:
    async def work(tx: Tx) -> list[tuple[str, str]]:
        return [(row["id"], row["owner"]) for row in await tx.all(notes.ALL)]

    return await served.engine.store.read(work)


async def jobs_of(served: Served, tenant: str) -> list[str]:
    return [job.payload["note_id"] for job in (await served.engine.reads.page(Filter(tenant=tenant))).jobs]


async def test_rows_and_jobs_of_a_request_are_committed_together(noted: Served) -> None:
    """For the caller's tenant, and in the name of the user that the key stands for."""
    _, text = await noted.engine.keys.create(NewKey(tenant="acme", scopes=["notes:write"], subject="alice"))
    made = await noted.http.post("/notes", json={"text": "first"}, headers=bearer(text))
    assert (made.status_code, made.json()["owner"]) == (201, "alice"), made.text
    assert await stored(noted) == [("first", "alice")]
    assert await jobs_of(noted, "acme") == ["first"]
    assert (await noted.engine.reads.get(made.json()["job_id"])).type == "NOTE_INDEX"


@pytest.mark.parametrize(("said", "status", "code"), [("conflict", 409, "conflict"), ("bug", 500, "internal_error")])
async def test_an_exception_rolls_back_the_transaction(noted: Served, said: str, status: int, code: str) -> None:
    answer = await noted.http.post("/notes", json={"text": said})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["requestId"] == answer.headers["x-request-id"]
    assert (await stored(noted), await jobs_of(noted, "default")) == ([], [])
    assert (await noted.http.post("/notes", json={"text": "next"})).status_code == 201, "the store goes on"


async def test_a_constraint_violation_is_a_problem_response(noted: Served) -> None:
    assert (await noted.http.post("/notes", json={"text": "same"})).status_code == 201
    again = await noted.http.post("/notes", json={"text": "same"})
    assert (again.status_code, again.headers["content-type"]) == (503, "application/problem+json")
    assert await stored(noted) == [("same", "default")]
    assert await jobs_of(noted, "default") == ["same"]


async def test_requests_that_hold_every_connection_still_enqueue(store_url: str) -> None:
    """What is to be known of the job type they read in the transactions that they hold."""
    if store_url.startswith("sqlite"):
        pytest.skip("SQLite allows one writer at a time")
    all_hold = asyncio.Barrier(CONNECTIONS)

    async def create(request: Request) -> notes.Note:
        async with request.tx():
            await all_hold.wait()
            served.engine.ctx.registry.forget_types()
            made = await request.enqueue("NOTE_INDEX", note_id="x")
        return notes.Note("x", "x", made.id)

    route = notes.route("POST", "/notes", create, answers={201: notes.Note})
    async with serving(store_url, routes=[route]) as served, asyncio.timeout(60):
        answers = await asyncio.gather(*(served.http.post("/notes") for _ in range(CONNECTIONS)))
    assert [answer.status_code for answer in answers] == [201] * CONNECTIONS


async def test_a_handler_that_takes_too_long_is_rolled_back(store_url: str) -> None:
    [create] = [route for route in notes.ROUTES if route.method == "POST"]
    impatient = notes.route("POST", "/notes", notes.create, body=notes.NewNote, answers={201: notes.Note}, seconds=0.2)
    assert create.seconds is None
    async with serving(store_url, routes=[impatient]) as served:
        await served.engine.store.write(lambda tx: tx.all(notes.TABLE))
        answer = await served.http.post("/notes", json={"text": "slow"})
        assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
        assert (await stored(served), await jobs_of(served, "default")) == ([], [])


async def test_an_extension_route_parses_requests_like_the_core(noted: Served) -> None:
    http = noted.http
    assert (await http.get("/notes", params={"starred": "true"})).json()["starred"] is True
    assert (await http.get("/notes", params={"stared": "true"})).status_code == 422
    assert (await http.get("/notes/known")).json() == {"note_id": "known", "owner": "the settings", "job_id": None}
    assert (await http.get("/notes/other")).json()["code"] == "note_not_found"
    assert (await http.delete("/notes/known")).status_code == 204
    assert (await http.post("/notes", json={"text": 1})).json()["code"] == "invalid_body"
    assert (await http.post("/notes", content=b"text=1")).status_code == 400
    assert (await http.put("/notes/known")).headers["allow"] == "GET, DELETE, HEAD"


async def test_openapi_and_metrics_name_extension_routes(noted: Served) -> None:
    document = (await noted.http.get("/openapi.json")).json()
    assert document["paths"]["/notes"]["post"]["tags"] == ["notes"]
    assert document["paths"]["/notes"]["post"]["security"][0] == {"key": ["notes:write"]}
    assert "notes" in [tag["name"] for tag in document["tags"]]
    assert "/notes/{noteId}" in (await noted.http.get("/docs")).text
    await noted.http.get("/notes/known")
    metrics = (await noted.http.get("/metrics")).text
    assert 'route="/notes/{noteId}",status_code="200"' in metrics
    made = await noted.http.post("/api/admin/keys", json={"scopes": ["notes:raed"]}, headers=ADMIN)
    assert made.json()["code"] == "unknown_scope", "a server knows the scopes that its routes ask for"


@pytest.mark.parametrize(
    ("extension", "method", "path", "other"),
    [
        ("other", "POST", "/jobs", "POST /jobs of the core"),
        ("other", "GET", "/jobs/{id}", "GET /jobs/{job_id} of the core"),
        ("other", "GET", "/jobs/mine", "GET /jobs/{job_id} of the core"),
        ("other", "GET", "/notes/{note_id}", "GET /notes/{note_id} of the extension notes"),
        ("other", "GET", "/notes/search", "GET /notes/{note_id} of the extension notes"),
        ("other", "POST", "/notes/search", "GET /notes/{note_id} of the extension notes"),
        ("other", "PUT", "/jobs/mine/events", "GET /jobs/{job_id}/events of the core"),
        ("notes", "GET", "/notes", "GET /notes of the extension notes"),
        ("notes", "PUT", "/notes/{id}/text", "GET /notes/{note_id} of the extension notes"),
    ],
)
def test_conflicting_routes_are_an_error_that_names_both(extension: str, method: str, path: str, other: str) -> None:
    one = extension_route(extension, method, path, notes.get, scope=f"{extension}:read")
    with pytest.raises(Invalid) as refused:
        together(CORE, [*notes.ROUTES, one], [])
    assert refused.value.code == "duplicate_route"
    assert f"{method} {path} of the extension {extension}" in refused.value.message
    assert other in refused.value.message


def test_an_extension_may_have_a_literal_path_beside_a_parameter() -> None:
    search = extension_route("notes", "GET", "/notes/search", notes.get, scope="notes:read")
    assert search in together(CORE, [*notes.ROUTES, search], [])


def test_a_mount_cannot_share_its_path() -> None:
    for path, other in (
        ("/jobs", "POST /jobs of the core"),
        ("/notes", "POST /notes of the extension notes"),
        ("/notes/app", "GET /notes/{note_id} of the extension notes"),
    ):
        with pytest.raises(Invalid, match=other):
            together(CORE, notes.ROUTES, [mount("pages", path, notes.get, scope=None)])
    both = [mount("pages", "/pages", notes.get, scope=None), mount("more", "/pages/more", notes.get, scope=None)]
    with pytest.raises(Invalid, match="the mount /pages of the extension pages"):
        together(CORE, [], both)


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "notes"},
        {"path": "/notes/"},
        {"path": "/"},
        {"path": "/notes/{Note Id}"},
        {"method": "get"},
        {"scope": "images:read"},
        {"scope": "Notes:read"},
        {"scope": "read"},
        {"answers": {404: None}},
        {"answers": {299: None}},
        {"answers": {"200": None}},
        {"refuses": (999,)},
        {"body": "Image/PNG"},
        {"body": "image/png; q=1"},
        {"body": "image"},
        {"body_max": 0},
        {"body_max": "1 MiB"},
        {"too_large": "too_big"},
        {"too_large": None},
        {"seconds": 0},
        {"seconds": float("nan")},
    ],
)
def test_an_invalid_route_is_an_error_that_names_it(wrong: dict[str, object]) -> None:
    words = {"method": "GET", "path": "/notes", "scope": "notes:read", **wrong}
    method, path = words.pop("method"), words.pop("path")
    with pytest.raises(Invalid, match=r"extension notes: ") as refused:
        extension_route("notes", method, path, notes.get, **words)  # type: ignore[arg-type]
    assert refused.value.code == "invalid_route"


@pytest.mark.parametrize("wrong", [{"app": None}, {"path": "/a/{b}"}, {"body_max": 1.5}, {"seconds": -1}])
def test_an_invalid_mount_is_an_error_that_names_it(wrong: dict[str, object]) -> None:
    words = {"path": "/pages", "app": notes.get, "scope": None, **wrong}
    with pytest.raises(Invalid, match=r"extension notes: mount /") as refused:
        mount("notes", words.pop("path"), words.pop("app"), **words)  # type: ignore[arg-type]
    assert refused.value.code == "invalid_route"


async def test_a_request_reads_without_a_write_transaction(store_url: str) -> None:
    """And sees what its own transaction has written."""

    async def count(request: Request) -> notes.Note:
        outside = len(await request.read(lambda tx: tx.all(notes.ALL)))
        async with request.tx() as tx:
            await tx.one(notes.PUT, id="new", owner="x", text="x")
            inside = len(await request.read(lambda tx: tx.all(notes.ALL)))
        return notes.Note(f"{outside} {inside}", "x")

    route = notes.route("GET", "/notes", count, answers={200: notes.Note})
    async with serving(store_url, routes=[route]) as served:
        await served.engine.store.write(lambda tx: tx.all(notes.TABLE))
        assert (await served.http.get("/notes")).json()["note_id"] == "0 1"


async def test_all_servers_of_a_database_share_a_secret(store_url: str) -> None:
    seen: list[bytes] = []

    async def tell(request: Request) -> notes.Note:
        seen.extend([await request.secret("urls"), await request.secret("urls"), await request.secret("other")])
        return notes.Note("x", "x")

    route = notes.route("GET", "/notes", tell, answers={200: notes.Note})
    for _ in range(2):
        async with serving(store_url, routes=[route]) as served:
            assert (await served.http.get("/notes")).status_code == 200
    assert len(set(seen)) == 2
    assert {len(secret) for secret in seen} == {32}


async def test_a_secret_of_one_extension_is_not_that_of_another(store_url: str) -> None:
    """Else one could make the signatures of the other."""
    seen: dict[str, bytes] = {}

    def route(extension: str) -> Route:
        async def tell(request: Request) -> notes.Note:
            seen[extension] = await request.secret("urls")
            return notes.Note("x", "x")

        return extension_route(extension, "GET", f"/{extension}", tell, scope=None, answers={200: notes.Note})

    async with serving(store_url, routes=[route("one"), route("two")]) as served:
        for path in ("/one", "/two"):
            assert (await served.http.get(path)).status_code == 200
    assert seen["one"] != seen["two"]


async def test_a_time_limit_does_not_name_what_the_handler_waited_for(store_url: str) -> None:
    """It may have been the database, object storage or anything else."""

    async def wait(request: Request) -> None:
        await asyncio.Event().wait()

    async with serving(store_url, routes=[notes.route("GET", "/notes", wait, seconds=0.1)]) as served:
        answer = await served.http.get("/notes")
    assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
    expected = "no response within 0.1 s; the request may have been applied: repeat it"
    assert answer.json()["detail"] == expected


@pytest.mark.parametrize(
    ("error", "status"), [(UnsupportedMedia("no picture"), 415), (NotAcceptable("no such format"), 406)]
)
async def test_an_error_about_a_format_has_its_status(store_url: str, error: HoldfastError, status: int) -> None:
    async def fail(request: Request) -> None:
        raise error

    async with serving(store_url, routes=[notes.route("GET", "/notes", fail, answers={200: notes.Note})]) as served:
        answer = await served.http.get("/notes")
    assert (answer.status_code, answer.json()["code"]) == (status, error.code)
