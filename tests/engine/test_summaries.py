"""Job summaries for clients: narrow queries for many jobs at once, each limited to its tenant."""

import pytest

from holdfast.engine import Engine, Filter
from holdfast.engine.reads import read as _read
from holdfast.errors import Invalid, NotFound
from holdfast.model import NewJob
from holdfast.model.summary import JobSummary


async def test_summaries_of_many_jobs_respect_the_tenant_of_each(engine: Engine) -> None:
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


async def test_a_job_of_another_tenant_looks_like_one_that_does_not_exist(engine: Engine) -> None:
    """SEC-9."""
    theirs = await engine.create(NewJob(type="b", tenant="them"))
    unknown_id = "01900000-0000-7000-8000-000000000000"
    [foreign] = await engine.reads.summaries([(theirs.id, "default")])
    [unknown] = await engine.reads.summaries([(unknown_id, "default")])
    assert isinstance(foreign, NotFound)
    assert isinstance(unknown, NotFound)
    assert foreign.message.replace(theirs.id, unknown_id) == unknown.message
    assert foreign.code == unknown.code


async def test_pages_of_summaries_have_no_gap_and_no_repeat(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_page_of_large_results_ends_early(engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
