"""Ids can be pasted from any table into any command, and tables fit a terminal of 80 columns."""

import asyncio
import re
from pathlib import Path

import pytest

from holdfast.assembly.engine import open_engine
from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.model.key import NewKey
from holdfast.settings import Settings
from tests.cli.conftest import Holdfast, Meanwhile, holdfast, meanwhile
from tests.cli.processes import holdfast as run_holdfast
from tests.cli.processes import on_terminal, without_escapes
from tests.cli.sample_jobs import dead, half_done, succeeded

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
        key = await engine.keys.create(NewKey(name="shop"))
        return (await engine.workers.register(name="encoder")).id, key.key.id

    worker, key = meanwhile(story)
    assert holdfast("workers", "disable", worker[:8], "--json").json["workerId"] == worker
    assert holdfast("keys", "revoke", key[: len(key) - 2], "--json").json["keyId"] == key
    assert holdfast("workers", "disable", "zzzz").code == 3


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A folder whose database has a bit of everything."""

    async def story() -> None:
        engine = await open_engine(Settings(data_dir=str(tmp_path / ".holdfast")))
        await engine.workers.register(
            name="encoder-7",
            slots=4,
            capabilities={"gpu": True},
            metadata={"host": "worker-0.jobs.svc.cluster.local", "pid": 4194304, "jobTypes": ["render", "mail"]},
        )
        await half_done(engine)
        await dead(engine, "E_UPSTREAM_TIMED_OUT", type="send-newsletter", queue="newsletters")
        await succeeded(engine, type="send-newsletter", queue="newsletters")
        await engine.keys.create(NewKey(name="the web shop", tenant="acme"))
        await engine.close()

    asyncio.run(story())
    return tmp_path


MONTHLY = "billing.invoices.generate_monthly_statement_pdf"
YEARLY = "billing.invoices.generate_yearly_statement_pdf"
BROKEN = "HTTPSConnectionPool(host='pdf.internal.example.com', port=443): Max retries exceeded with url: /v2/render"


@pytest.fixture
def long_names(tmp_path: Path) -> tuple[Path, str]:
    """A folder whose database has the names and errors of a grown system, and a job that failed there."""

    async def story() -> str:
        engine = await open_engine(Settings(data_dir=str(tmp_path / ".holdfast")))
        await engine.workers.register(
            name="billing-worker-eu-west-1a-statements-0",
            slots=10,
            capabilities={"codecs": ["h264", "vp9", "av1"]},
            metadata={"host": "worker-7d9c6b5f4d-x2x8q.jobs.svc.cluster.local", "jobTypes": [MONTHLY, YEARLY]},
        )
        for kind in (MONTHLY, YEARLY):
            await half_done(engine, type=kind, queue=kind.replace("_", "-"))
            failed = await dead(engine, "E_CUSTOMER_ACCOUNT_SUSPENDED", BROKEN, type=kind, queue=kind.replace("_", "-"))
        await engine.close()
        return failed

    return tmp_path, asyncio.run(story())


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "typed", ["jobs list", "workers list", "queues list", "top --once", "jobs show ID", "jobs events ID", "jobs why ID"]
)
def test_long_names_and_errors_fit_the_terminal(long_names: tuple[Path, str], typed: str, columns: int) -> None:
    folder, job_id = long_names
    code, seen = on_terminal(*typed.replace("ID", job_id).split(), folder=folder, columns=columns)
    assert code == 0, seen
    assert [line for line in without_escapes(seen).splitlines() if len(line.rstrip()) > columns] == []


@pytest.mark.parametrize("typed", ["jobs list", "top --once"])
def test_truncated_long_names_stay_distinguishable(long_names: tuple[Path, str], typed: str) -> None:
    _, seen = on_terminal(*typed.split(), folder=long_names[0], columns=80)
    words = [word for word in without_escapes(seen).split() if word.startswith("bil") and "…" in word]
    shown = [word for word in words if not word.startswith("billing-worker")]
    assert len({word for word in shown if "monthly" in word}) == len({word for word in shown if "yearly" in word}) > 0
    assert all("monthly" in word or "yearly" in word for word in shown), shown


@pytest.mark.parametrize("typed", ["jobs list", "jobs show ID"])
def test_an_error_is_wrapped_between_words(long_names: tuple[Path, str], typed: str) -> None:
    folder, job_id = long_names
    _, seen = on_terminal(*typed.replace("ID", job_id).split(), folder=folder, columns=80)
    words = without_escapes(seen).split()
    assert any(word.startswith("E_CUSTOMER_ACCOUNT_SUSPENDED") for word in words), seen
    assert "list" in typed or words.count("HTTPSConnectionPool(host='pdf.internal.example.com',") == 2, seen


@pytest.mark.parametrize("typed", ["jobs list", "workers list", "queues list", "top --once"])
def test_output_to_a_pipe_is_not_truncated(long_names: tuple[Path, str], typed: str) -> None:
    seen = run_holdfast(*typed.split(), folder=long_names[0]).stdout
    assert "…" not in seen
    assert all(name in seen or name.replace("_", "-") in seen for name in (MONTHLY, YEARLY))


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
        await engine.workers.register(name="encoder", metadata={"host": "box-7", "pid": 4711})

    meanwhile(story)
    [row] = holdfast("workers", "list").rows
    assert row[7:9] == ["box-7", "4711"]
