"""Ids can be pasted from any table into any command, and tables fit a terminal of 80 columns."""

import re
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.model.key import NewKey
from tests.cli.conftest import Holdfast, Meanwhile, holdfast, meanwhile
from tests.cli.processes import on_terminal, without_escapes
from tests.cli.stories import dead, half_done, succeeded

__all__ = ["holdfast", "meanwhile"]

SHORT = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}\b")


def test_a_job_is_named_by_the_beginning_of_its_id(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = meanwhile(dead)
    beginning = job_id[:18]
    assert holdfast("jobs", "show", beginning, "--json").json["jobId"] == job_id
    assert holdfast("jobs", "show", beginning.replace("-", "").upper(), "--json").code == 3  # as it is shown, or not
    assert holdfast("jobs", "why", beginning, "--json").json["jobId"] == job_id
    assert len(holdfast("jobs", "events", beginning).rows) == 3
    assert holdfast("jobs", "redrive", beginning).rows[0][0] == job_id
    queued = holdfast("jobs", "create", "a").out.strip()
    assert holdfast("jobs", "cancel", queued[:18]).out == f"{queued}\tcanceled\n"


def test_an_ambiguous_beginning_lists_the_candidates_and_changes_nothing(
    holdfast: Holdfast, meanwhile: Meanwhile
) -> None:
    async def two(engine: Engine) -> list[str]:
        return [job.id for job in await engine.create_many([NewJob(type="a")] * 2)]

    ids = meanwhile(two)
    answer = holdfast("jobs", "cancel", ids[0][:8])
    assert (answer.code, answer.out) == (4, "")
    assert all(job_id in answer.err for job_id in ids)
    assert holdfast("jobs", "cancel", ids[0][:8], "--json").err.count("ambiguous_id") == 1
    assert {job["state"] for job in holdfast("jobs", "list", "--json").json["jobs"]} == {"queued"}
    assert holdfast("jobs", "show", "ffff").code == 3
    assert holdfast("jobs", "show", "0").code == 3


def test_workers_and_keys_are_named_by_the_beginning_of_their_ids(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def story(engine: Engine) -> tuple[str, str]:
        key = await engine.create_key(NewKey(name="shop"))
        return (await engine.register(name="encoder")).id, key.key.id

    worker, key = meanwhile(story)
    assert holdfast("workers", "disable", worker[:8], "--json").json["workerId"] == worker
    assert holdfast("keys", "revoke", key[: len(key) - 2], "--json").json["keyId"] == key
    assert holdfast("workers", "disable", "zzzz").code == 3


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A folder whose database has a bit of everything."""
    import asyncio

    from holdfast.assembly import open_engine
    from holdfast.settings import Settings

    async def story() -> None:
        engine = await open_engine(Settings(data_dir=str(tmp_path / ".holdfast")))
        await engine.register(
            name="encoder-7",
            slots=4,
            capabilities={"gpu": True},
            metadata={"host": "worker-0.jobs.svc.cluster.local", "pid": 4194304, "jobTypes": ["render", "mail"]},
        )
        await half_done(engine)
        await dead(engine, "E_UPSTREAM_TIMED_OUT", type="send-newsletter", queue="newsletters")
        await succeeded(engine, type="send-newsletter", queue="newsletters")
        await engine.create_key(NewKey(name="the web shop", tenant="acme"))
        await engine.close()

    asyncio.run(story())
    return tmp_path


@pytest.mark.parametrize(
    "typed",
    ["jobs list", "workers list", "keys list", "queues list", "top --once", "config show", "lifecycle list"],
)
def test_tables_fit_80_columns(busy: Path, typed: str) -> None:
    code, seen = on_terminal(*typed.split(), folder=busy, columns=80)
    assert code == 0, seen
    too_long = [line for line in without_escapes(seen).splitlines() if len(line.rstrip()) > 80]
    assert too_long == []


@pytest.mark.parametrize("typed", ["jobs list", "top --once"])
def test_a_narrow_table_shows_ids_that_can_be_pasted(busy: Path, typed: str) -> None:
    _, seen = on_terminal(*typed.split(), folder=busy, columns=80)
    shown = SHORT.findall(without_escapes(seen))
    assert len(shown) >= 3
    answers = [on_terminal("jobs", "show", each, "--json", folder=busy) for each in shown[-2:]]
    assert [code for code, _ in answers] == [0, 0]


def test_workers_list_says_where_each_process_runs(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def story(engine: Engine) -> None:
        await engine.register(name="encoder", metadata={"host": "box-7", "pid": 4711})

    meanwhile(story)
    [row] = holdfast("workers", "list").rows
    assert row[7:9] == ["box-7", "4711"]
