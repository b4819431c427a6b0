"""What clients are told of jobs is read by queries of its own: narrow, many at once, and each tenant's own."""

import pytest

from holdfast.engine import Engine, Filter
from holdfast.engine.reads import read as _read
from holdfast.errors import Invalid, NotFound
from holdfast.model import NewJob
from holdfast.model.summary import JobSummary


async def test_many_are_asked_after_at_once_and_each_tenant_finds_its_own(engine: Engine) -> None:
    ours = await engine.create(NewJob(type="a"))
    theirs = await engine.create(NewJob(type="b", tenant="them"))
    asked = [(theirs.id, "them"), (ours.id, "them"), (ours.id, "default"), ("no id", "them"), (theirs.id, "default")]
    answers = await engine.reads.summaries(asked)
    assert [one.type if isinstance(one, JobSummary) else type(one) for one in answers] == [
        "b",
        NotFound,
        "a",
        NotFound,
        NotFound,
    ]


async def test_a_job_that_is_not_ours_cannot_be_told_from_one_that_never_was(engine: Engine) -> None:
    """SEC-9."""
    theirs = await engine.create(NewJob(type="b", tenant="them"))
    nobodys = "01900000-0000-7000-8000-000000000000"
    [foreign] = await engine.reads.summaries([(theirs.id, "default")])
    [unknown] = await engine.reads.summaries([(nobodys, "default")])
    assert isinstance(foreign, NotFound)
    assert isinstance(unknown, NotFound)
    assert foreign.message.replace(theirs.id, nobodys) == unknown.message
    assert foreign.code == unknown.code


async def test_pages_follow_each_other_without_gap_or_repeat(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_read, "PAGE_STEP", 3)  # a page of more is read in several steps
    made = [one.id for one in await engine.create_many([NewJob(type="a")] * 11)]
    await engine.create(NewJob(type="a", tenant="them"))
    await engine.create(NewJob(type="b"))
    seen: list[str] = []
    cursor, wanted = None, Filter(tenant="default", types=["a"])
    for _ in range(3):
        page, cursor = await engine.reads.page_summaries(wanted, cursor=cursor, limit=4)
        seen += [one.id for one in page]
    assert (seen, cursor) == (made[::-1], None)


async def test_a_page_of_much_text_ends_early(engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_read, "PAGE_STEP", 1)
    monkeypatch.setattr(_read, "PAGE_CHARS_MAX", 150)
    made = [one.id for one in await engine.create_many([NewJob(type="a")] * 4)]
    for lease in await engine.claim(worker, limit=4):
        await engine.complete(worker, lease.id, lease.token, "x" * 98)  # a hundred characters of JSON
    first, cursor = await engine.reads.page_summaries(Filter(), limit=4)
    rest, end = await engine.reads.page_summaries(Filter(), limit=4, cursor=cursor)
    assert [one.id for one in first + rest] == made[::-1]
    assert (len(first), end) == (2, None)


async def test_a_page_has_at_least_one_job_and_at_most_five_hundred(engine: Engine) -> None:
    for limit in (0, 501):
        with pytest.raises(Invalid, match="1 to 500"):
            await engine.reads.page_summaries(Filter(), limit=limit)


async def test_a_shared_secret_is_made_once_and_differs_from_others(engine: Engine) -> None:
    first, other = await engine.keys.server_secret("first"), await engine.keys.server_secret("other")
    assert first != other
    assert (await engine.keys.server_secret("first"), await engine.keys.server_secret("other")) == (first, other)
    assert len(first) == 32
