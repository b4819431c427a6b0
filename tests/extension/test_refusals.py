"""Guards that refuse a new job: the status over HTTP, and the audit entry that outlives the rollback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Any

import msgspec
import pytest

from holdfast import App, Client
from holdfast.engine import Engine
from holdfast.engine.admin import audit
from holdfast.engine.admin.audit import AuditEntry
from holdfast.errors import Invalid, PaymentRequired, Refused, StoreUnavailable, TooMany
from holdfast.extend import CreateRequest, Extension, Request, Tx
from holdfast.model import NewJob
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from tests.server.steps import ADMIN, Served, serving

MANY = 200


def refusing() -> Extension:
    ext = Extension("notes", package="tests.extension.toy")

    @ext.job("NOTE_INDEX")
    async def index(text: str) -> None: ...

    @ext.guard("create", job_type="NOTE_INDEX")
    async def ask(tx: Tx, request: CreateRequest) -> None:
        text = request.job.payload["text"]
        await tx.run(ext.q.add_entry, job=text, entry="asked")
        entry = ext.audit_entry("NOTE_BLOCK", "alice", text=text)
        if text == "free":
            raise PaymentRequired("you have no credits", code="no_credits", audit=entry)
        if text == "often":
            raise TooMany("two notes a day", code="quota_exceeded", retry_after=3599.5, audit=entry)
        if text == "quiet":
            raise Refused("not this")
        if text != "fine":
            raise Refused("not this text", code="note_refused", audit=entry)

    @ext.route("POST", "/notes/{text}", scope="jobs:create", answers={201: "application/json"}, refuses=(402,))
    async def write(request: Request) -> str:
        return (await request.enqueue(index, request.path["text"])).id

    return ext


@pytest.fixture
def ext() -> Extension:
    return refusing()


@pytest.fixture
async def app(store_url: str, ext: Extension) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url), name="refusals")
    app.include(ext)
    await migrate(store_url, [ext])
    yield app
    await app.close()


@pytest.fixture
async def served(store_url: str, app: App) -> AsyncIterator[Served]:
    async with serving(store_url, app=app) as served:
        yield served


def new(text: str) -> NewJob:
    return NewJob(type="NOTE_INDEX", payload={"text": text})


def note(text: str) -> dict[str, Any]:
    return {"jobType": "NOTE_INDEX", "payload": {"text": text}}


async def lines(engine: Engine) -> list[AuditEntry]:
    """The entries of the extension, oldest first, of a log that verifies."""
    assert (await engine.audit.verify()).wrong is None
    found, before = list[AuditEntry](), None
    while True:
        page = await engine.audit.page(before=before, limit=500)
        found += [line for line in page.lines if line.actor == "extension notes"]
        if (before := page.next) is None:
            return found[::-1]


async def texts(engine: Engine) -> list[str]:
    return [line.detail["text"] for line in await lines(engine)]


async def asked(engine: Engine, ext: Extension) -> int:
    return len(await engine.store.read(lambda tx: tx.all(ext.q.entries)))


# -- over HTTP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [("bad", 422, "note_refused"), ("free", 402, "no_credits"), ("often", 429, "quota_exceeded")],
)
async def test_a_refused_request_leaves_only_its_audit_entry(
    served: Served, ext: Extension, text: str, status: int, code: str
) -> None:
    alone = await served.http.post("/jobs", json=note(text))
    batch = await served.http.post("/jobs/batch", json={"jobs": [note("fine"), note(text)]})
    route = await served.http.post(f"/notes/{text}")
    for answer in (alone, batch, route):
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (status, code), answer.text
        assert not problem.keys() - {"type", "title", "status", "detail", "code", "requestId"}
        assert answer.headers.get("retry-after") == ("3600" if status == 429 else None)
    assert await texts(served.engine) == [text] * 3
    [line, *_] = await lines(served.engine)
    assert (line.action, line.subject) == ("NOTE_BLOCK", "alice")
    assert (await served.engine.reads.page()).jobs == []
    assert await asked(served.engine, ext) == 0


async def test_a_refusal_without_an_entry_writes_none(served: Served) -> None:
    assert (await served.http.post("/jobs", json=note("quiet"))).status_code == 422
    assert (await served.http.post("/jobs", json=note("fine"))).status_code == 202
    assert await lines(served.engine) == []


async def test_concurrent_refusals_all_have_their_entry(served: Served) -> None:
    """Of requests that share a commit, and of others."""
    urls = ["/jobs"] * (MANY // 2) + ["/notes/{}"] * (MANY // 2)

    async def send(place: int, url: str) -> int:
        body = note(f"bad-{place}") if url == "/jobs" else None
        return (await served.http.post(url.format(f"bad-{place}"), json=body)).status_code

    assert set(await asyncio.gather(*(send(place, url) for place, url in enumerate(urls)))) == {422}
    assert sorted(await texts(served.engine)) == sorted(f"bad-{place}" for place in range(MANY))


async def test_the_client_raises_payment_required(served: Served) -> None:
    async with Client(served.url) as client:
        with pytest.raises(PaymentRequired, match="no credits") as refused:
            await client.create("NOTE_INDEX", {"text": "free"})
    assert refused.value.code == "no_credits"


async def test_a_route_may_describe_402(served: Served) -> None:
    document = (await served.http.get("/openapi.json")).json()
    for path in ("/notes/{text}", "/jobs", "/jobs/batch", "/api/admin/jobs/{jobId}/redrive"):
        refused = document["paths"][path]["post"]["responses"]
        assert refused["402"] == {"$ref": "#/components/responses/PaymentRequired"}
        assert {"422", "429"} <= refused.keys()


async def test_a_failed_redrive_is_a_refusal_too(served: Served) -> None:
    made = (await served.http.post("/jobs", json=note("fine"))).json()["jobId"]
    await served.engine.cancel(made)
    again = await served.http.post(f"/api/admin/jobs/{made}/redrive", json={"payload": {"text": "free"}}, headers=ADMIN)
    assert (again.status_code, again.json()["code"]) == (402, "no_credits")
    with pytest.raises(PaymentRequired):
        await served.engine.redrive(made, payload={"text": "free"})
    assert await texts(served.engine) == ["free", "free"]


# -- the engine and the SDK ---------------------------------------------------------------------------------------


async def test_the_sdk_writes_the_entry_too(app: App) -> None:
    keyed = msgspec.structs.replace(new("b"), idempotency_key="k")
    for call in (app.create([new("a")]), app.create([keyed]), app.create_alike(new(""), [{"text": "c"}])):
        with pytest.raises(Refused):
            await call
    assert await texts(await app.engine()) == ["a", "b", "c"]


async def test_concurrent_creates_all_have_their_entry(app: App) -> None:
    calls = [app.create([new(f"bad-{place}")]) for place in range(MANY)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Refused}
    assert sorted(await texts(await app.engine())) == sorted(f"bad-{place}" for place in range(MANY))


async def test_an_entry_that_cannot_be_written_does_not_hide_the_refusal(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await app.engine()

    async def fail(*_: object) -> None:
        raise StoreUnavailable("the database is full")

    monkeypatch.setattr(audit, "record_all", fail)
    with pytest.raises(Refused, match="not this text"):
        await app.create([new("bad")])
    [said] = [record for record in caplog.records if "audit" in record.message]
    assert "cannot write 1 audit entries" in said.message
    assert await lines(engine) == []


async def test_an_entry_must_be_valid(ext: Extension) -> None:
    for action, detail in (("", {}), (7, {}), ("X", {"text": object()}), ("X", {"text": "x" * 5000})):
        with pytest.raises(Invalid) as refused:
            ext.audit_entry(action, None, **detail)  # type: ignore[arg-type]
        assert refused.value.code == "invalid_audit_line"


def test_an_entry_is_not_a_field_of_the_error(ext: Extension) -> None:
    entry = ext.audit_entry("NOTE_BLOCK", "alice")
    errors = Refused("no", audit=entry, limit=1), TooMany("no", retry_after=1, audit=entry, limit=1)
    for error in errors:
        assert (error.audit, error.fields) == (entry, {"limit": 1})


# -- in the transaction of a request ------------------------------------------------------------------------------


@pytest.mark.parametrize("swallowed", [False, True])
async def test_a_refusal_in_the_transaction_of_a_request_has_its_entry_too(store_url: str, swallowed: bool) -> None:
    """Written after the transaction, whether that is rolled back or the route goes on without the job."""
    ext, app = refusing(), App(Settings(database_url=store_url), name="refusals")

    @ext.route("POST", "/notes", scope="jobs:create", answers={204: None})
    async def write(request: Request) -> None:
        async with request.tx() as tx:
            await tx.run(ext.q.add_entry, job="of the route", entry="written")
            for text in ("bad", "fine"):
                with suppress(Refused) if swallowed else nullcontext():
                    await request.enqueue("NOTE_INDEX", text=text)

    app.include(ext)
    async with serving(store_url, app=app) as served:
        answer = await served.http.post("/notes")
        assert answer.status_code == (204 if swallowed else 422), answer.text
        assert await texts(served.engine) == ["bad"]
        assert await asked(served.engine, ext) == (2 if swallowed else 0)
        assert len((await served.engine.reads.page()).jobs) == int(swallowed)
    await app.close()


async def test_an_open_transaction_of_other_code_gets_no_entry(app: App) -> None:
    """It may still be rolled back, with all that is in it."""
    engine = await app.engine()
    with pytest.raises(Refused):
        await engine.store.write(lambda tx: engine.within(tx).create(new("bad")))
    assert await lines(engine) == []
