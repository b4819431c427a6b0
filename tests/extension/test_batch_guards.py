"""Guards on create that take batches: one call for the jobs that are created together, refusals of some of them."""

from collections.abc import AsyncIterator

import pytest

from holdfast import App
from holdfast.engine import Created, Engine
from holdfast.engine.insert import checked
from holdfast.errors import Invalid, Refused
from holdfast.extend import CreateRequest, Extension, Tx
from holdfast.model import Job, NewJob
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from tests.server.steps import serving


class Notes:
    """An extension whose guard writes an entry for each job under its id, and refuses those with a bad text."""

    def __init__(self) -> None:
        self.ext = ext = Extension("notes", package="tests.extension.toy")
        self.calls: list[list[str]] = []
        self.followed: list[tuple[str, list[str]]] = []

        @ext.job("NOTE_INDEX")
        async def index(text: str) -> None: ...

        @ext.guard("create", job_type="NOTE_INDEX", batch=True)
        async def ask(tx: Tx, requests: list[CreateRequest]) -> None:
            self.calls.append([request.job.payload["text"] for request in requests])
            for request in requests:
                text = request.job.payload["text"]
                if text == "raises":
                    raise Refused("none of these", code="raised")
                if text.startswith("bad"):
                    audit = ext.audit_entry("NOTE_BLOCK", "alice", text=text)
                    request.refuse(Refused("not this", code="bad_note", audit=audit))
                if text.startswith(("same", "last")):
                    request.derive_key("alice", text)
                if text == "last" and (request is not requests[0] or await tx.all(ext.q.entries)):
                    request.refuse(Refused("there was only one", code="too_late"))
                request.state = text
                await tx.run(ext.q.add_entry, job=request.job_id, entry="asked")

        @ext.effect("create", "cancel", job_type="NOTE_INDEX", batch=True)
        async def follow(tx: Tx, verb: str, jobs: list[Job]) -> None:
            self.followed.append((verb, [job.payload["text"] for job in jobs]))

        @ext.guard("create", job_type="NOTE_INDEX")
        async def told(tx: Tx, request: CreateRequest) -> None:
            assert request.state == request.job.payload["text"]


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
async def engine(store_url: str, notes: Notes) -> AsyncIterator[Engine]:
    app = App(Settings(database_url=store_url), name="batches")
    app.include(notes.ext)
    await migrate(store_url, [notes.ext])
    async with serving(store_url, app=app) as served:
        yield served.engine
    await app.close()


async def create(engine: Engine, *texts: str) -> list[Created | Exception]:
    return await engine.create_each([checked(NewJob(type="NOTE_INDEX", payload={"text": text})) for text in texts])


async def entries(engine: Engine, notes: Notes) -> list[str]:
    return sorted(row["job"] for row in await engine.store.read(lambda tx: tx.all(notes.ext.q.entries)))


async def test_a_batch_is_one_call_and_knows_the_ids_of_its_jobs(engine: Engine, notes: Notes) -> None:
    made = await create(engine, "one", "two", "three")
    assert notes.calls == [["one", "two", "three"]]
    assert [(verb, sorted(texts)) for verb, texts in notes.followed] == [("create", ["one", "three", "two"])]
    assert await entries(engine, notes) == sorted(each.id for each in made if isinstance(each, Created))


async def test_some_are_refused_and_the_others_are_asked_again(engine: Engine, notes: Notes) -> None:
    one, bad, two, worse = await create(engine, "one", "bad", "two", "bad too")
    assert notes.calls == [["one", "bad", "two", "bad too"], ["one", "two"]]
    assert isinstance(one, Created)
    assert isinstance(two, Created)
    assert [getattr(each, "code", None) for each in (bad, worse)] == ["bad_note", "bad_note"]
    assert await entries(engine, notes) == sorted([one.id, two.id])
    lines = (await engine.audit.page()).lines
    assert sorted(line.detail["text"] for line in lines if line.action == "NOTE_BLOCK") == ["bad", "bad too"]


async def test_a_single_request_that_is_refused_leaves_nothing(engine: Engine, notes: Notes) -> None:
    [refused] = await create(engine, "bad")
    assert getattr(refused, "code", None) == "bad_note"
    assert await entries(engine, notes) == []


async def test_all_are_refused(engine: Engine, notes: Notes) -> None:
    assert [getattr(each, "code", None) for each in await create(engine, "bad", "bad")] == ["bad_note", "bad_note"]
    assert await entries(engine, notes) == []


async def test_one_that_raises_fails_alone(engine: Engine, notes: Notes) -> None:
    one, raised, two = await create(engine, "one", "raises", "two")
    assert isinstance(one, Created)
    assert isinstance(two, Created)
    assert getattr(raised, "code", None) == "raised"
    assert notes.calls == [["one", "raises", "two"], ["one"], ["raises"], ["two"]]
    assert await entries(engine, notes) == sorted([one.id, two.id])


async def test_a_repeat_within_a_batch_and_after_it_is_the_same_job(engine: Engine, notes: Notes) -> None:
    first, second, other = await create(engine, "same", "same", "other")
    [again] = await create(engine, "same")
    assert isinstance(first, Created)
    assert isinstance(other, Created)
    for repeat in (second, again):
        assert isinstance(repeat, Created)
        assert (repeat.id, repeat.existed) == (first.id, True)
    assert await entries(engine, notes) == sorted([first.id, other.id])


async def test_a_repeat_is_not_refused_for_what_the_first_request_has_used_up(engine: Engine, notes: Notes) -> None:
    first, second, other = await create(engine, "last", "last", "one")
    [third, _] = await create(engine, "last", "two")
    assert isinstance(first, Created)
    assert isinstance(other, Created)
    assert [getattr(each, "id", each) for each in (second, third)] == [first.id, first.id]


@pytest.mark.parametrize("verbs", [("claim",), ("create", "claim")])
def test_only_guards_on_create_alone_take_batches(verbs: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="only a guard on create alone takes batches"):
        Extension("notes").guard(*verbs, job_type="NOTE_INDEX", batch=True)
