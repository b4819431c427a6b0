"""Bad input: the same typed error on both stores, with a stable code, and nothing written."""

import math
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import Cursor, Engine, Filter, HeldLease, NewWorker, Progress, Retention
from holdfast.errors import HoldfastError, Invalid, NotFound, StoreUnavailable
from holdfast.model import JobType, Liveness, NewJob, Part, PartStatus
from holdfast.store import migrate as migrating
from holdfast.store import open_store
from holdfast.store.migrate import Migration, dialect_of, migrate, migrations, missing
from holdfast.store.queries import Query
from tests.codes import code_of
from tests.engine.log import settled
from tests.engine.steps import ask, held, run, stored
from tests.store.by_hand import by_hand

TABLES = ("job_types", "policies", "lanes", "queues", "workers", "jobs", "events", "attempts", "parts")
HUGE = 10**5000
LONE = "\ud800"
FAR = datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))
LIMITS = [0, -1, True, "5", 1.0, HUGE, [1]]


async def everything(engine: Engine) -> tuple[int, ...]:
    """How many rows there are in each table."""
    sql = "SELECT " + ", ".join(f"(SELECT count(*) FROM holdfast_{table}) AS {table}" for table in TABLES)
    [row] = await engine.store.read(lambda tx: tx.all(Query("everything", sql)))
    return tuple(row)


async def refused(work: Awaitable[Any]) -> str:
    """The code of the error that it ends in."""
    with pytest.raises(HoldfastError) as caught:
        await work
    return code_of(caught.value)


JOBS = [
    ({"policy": [1]}, "policy_not_json"),
    ({"policy": {"errors": {LONE: "permanent"}}}, "policy_not_json"),
    ({"policy": {"errors": {"a": object()}}}, "policy_not_json"),
    ({"policy": {"errors": {"a" * 17_000: "permanent"}}}, "policy_too_large"),
    ({"policy": {"lease_seconds": -1}}, "invalid_policy"),
    ({"policy": {"lease_seconds": "soon"}}, "invalid_policy"),
    ({"policy": {"lease_secs": 1}}, "invalid_policy"),
    ({"lifecycle": 5}, "invalid_field lifecycle"),
    ({"lifecycle": ["default"]}, "invalid_field lifecycle"),
    ({"lifecycle": "defualt"}, "unknown_lifecycle"),
    ({"trace": [1]}, "trace_not_json"),
    ({"trace": {"a": 1}}, "trace_not_json"),
    ({"trace": {"a": LONE}}, "trace_not_json"),
    ({"trace": {"a": "x" * 5000}}, "trace_too_large"),
    ({"run_at": FAR}, "invalid_field run_at"),
    ({"run_at": datetime(1969, 1, 1, tzinfo=UTC)}, "invalid_field run_at"),
    ({"run_at": datetime(2026, 1, 1)}, "invalid_field run_at"),  # noqa: DTZ001
    ({"run_at": 5}, "invalid_field run_at"),
    ({"priority": HUGE}, "invalid_field priority"),
    ({"tags": 0}, "invalid_field tags"),
    ({"requires": ""}, "invalid_field requires"),
    ({"payload": "{}"}, "payload_not_json"),
    ({"idempotency_key": b"k"}, "invalid_field idempotency_key"),
]


async def test_an_invalid_job_is_rejected_on_both_stores_and_writes_nothing(engine: Engine) -> None:
    before = await everything(engine)
    for fields, code in JOBS:
        assert await refused(engine.create(NewJob(**{"type": "echo", **fields}))) == code, fields
    assert await everything(engine) == before


async def test_an_invalid_job_in_a_batch_rejects_the_batch_and_writes_nothing(engine: Engine) -> None:
    """Neither the job nor its policy and its lane, which a create makes on the way."""
    before = await everything(engine)
    for fields, code in JOBS:
        bad = NewJob(**{"type": "echo", **fields})
        assert await refused(engine.create_many([NewJob(type="good"), bad])) == code, fields
        assert await everything(engine) == before, fields


async def test_a_time_at_the_edge_is_kept_to_the_microsecond(engine: Engine) -> None:
    for edge in (datetime(1970, 1, 1, tzinfo=UTC), datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)):
        job = await engine.create(NewJob(type="echo", run_at=edge))
        assert (await engine.reads.get(job.id)).run_at == edge


async def test_an_invalid_job_type_declaration_is_rejected_on_both_stores_and_writes_nothing(engine: Engine) -> None:
    before = await everything(engine)
    for fields, code in [
        ({"name": 5}, "invalid_field job_type"),
        ({"lifecycle": None}, "invalid_field lifecycle"),
        ({"lifecycle": "defualt"}, "unknown_lifecycle"),
        ({"queue": 5}, "invalid_field queue"),
        ({"policy": None}, "policy_not_json"),
        ({"policy": [1]}, "policy_not_json"),
        ({"policy": {"lease_seconds": math.inf}}, "policy_not_json"),
        ({"policy": {"lease_seconds": 0}}, "invalid_policy"),
        ({"requires": None}, "invalid_field requires"),
        ({"prefers": [LONE]}, "invalid_field prefers"),
    ]:
        bad = JobType(**{"name": "echo", **fields})
        assert await refused(engine.job_types.declare(JobType(name="good"), bad)) == code, fields
    assert await everything(engine) == before


async def test_a_limit_is_a_whole_number_from_one_up(engine: Engine) -> None:
    job = await engine.create(NewJob(type="echo"))
    await engine.cancel(job.id)
    for limit in LIMITS:
        for ask_for in (
            engine.reads.history(job.id, limit=limit),
            engine.reads.history("no id", limit=limit),
            engine.reads.feed(limit=limit),
            engine.reads.page(limit=limit),
            engine.maintenance.prune(Retention(canceled=0), limit=limit),
        ):
            assert await refused(ask_for) == "invalid_field limit"
    assert len(await engine.reads.history(job.id, limit=10**6)) == 2, "what is more than enough is cut"
    await settled(engine)
    assert len((await engine.reads.feed(limit=1))[0]) == 1
    assert await engine.maintenance.prune(Retention(canceled=0), limit=1) == 1


async def test_an_invalid_filter_or_cursor_is_rejected_on_both_stores(engine: Engine) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    for wanted, code in [
        (Filter(created_after=naive), "invalid_field created_after"),
        (Filter(created_before=FAR), "invalid_field created_before"),
        (Filter(states="queued"), "invalid_field states"),  # type: ignore[arg-type]
        (Filter(states=[5]), "unknown_state"),  # type: ignore[list-item]
        (Filter(types=[LONE]), "invalid_field job_type"),
        (Filter(tag=5), "invalid_field tag"),  # type: ignore[arg-type]
    ]:
        assert await refused(engine.reads.page(wanted)) == code
        assert await refused(engine.reads.counts(wanted)) == code
    for cursor in (Cursor(pos="1"), Cursor(pos=1.5), Cursor(seq=None), Cursor(job_id=5), Cursor(pos=2**63)):  # type: ignore[arg-type]
        assert await refused(engine.reads.feed(cursor)) == "invalid_cursor"
    assert await refused(engine.reads.page(cursor=5)) == "invalid_cursor"  # type: ignore[arg-type]
    assert await refused(engine.reads.history("no id", after="x")) == "invalid_field after"  # type: ignore[arg-type]
    for ids in (None, 5, "no id", [5], [["no id"]]):
        assert await refused(engine.reads.parts_to_do(ids)) == "invalid_field job_ids"  # type: ignore[arg-type]


async def test_a_malformed_id_finds_nothing(engine: Engine) -> None:
    for no_id in ("no id", "", LONE, "\x00"):
        assert (
            await engine.reads.history(no_id),
            await engine.reads.attempts(no_id),
            await engine.reads.parts(no_id),
        ) == ([], [], [])
        assert await engine.reads.parts_to_do([no_id]) == {no_id: []}
    for no_id in ("no id", LONE, 5, None, HUGE, ["a"]):
        with pytest.raises(NotFound):
            await engine.reads.get(no_id)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            await engine.workers.enable(no_id)  # type: ignore[arg-type]


async def test_a_filter_may_be_any_collection_of_names(engine: Engine) -> None:
    await engine.create(NewJob(type="echo"))
    for several in (("echo", "other"), {"echo"}, frozenset({"echo"})):
        assert len((await engine.reads.page(Filter(types=several))).jobs) == 1  # type: ignore[arg-type]


async def test_an_invalid_worker_registration_is_rejected_and_writes_nothing(engine: Engine) -> None:
    before = await everything(engine)
    for fields, code in [
        ({"capabilities": [1]}, "capabilities_not_json"),
        ({"capabilities": None}, "capabilities_not_json"),
        ({"capabilities": {1: True}}, "capabilities_not_json"),
        ({"capabilities": {"n": HUGE}}, "capabilities_not_json"),
        ({"capabilities": {"a\nb": True}}, "invalid_field capabilities"),
        ({"capabilities": {"a": "x" * 11_000}}, "capabilities_too_large"),
        ({"metadata": [1]}, "metadata_not_json"),
        ({"metadata": {"a": LONE}}, "metadata_not_json"),
        ({"id": 5}, "invalid_field worker_id"),
        ({"id": HUGE}, "invalid_field worker_id"),
        ({"name": 5}, "invalid_field name"),
        ({"kind": None}, "invalid_field kind"),
        ({"tenants": "a"}, "invalid_field tenants"),
        ({"slots": -1}, "invalid_field slots"),
        ({"heartbeat_seconds": "10"}, "invalid_field heartbeat_seconds"),
        ({"offline_seconds": math.nan}, "invalid_field offline_seconds"),
    ]:
        assert await refused(engine.workers.register(NewWorker(**fields))) == code, fields
    assert await everything(engine) == before


async def test_an_invalid_heartbeat_renews_nothing(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    workers = await engine.workers.all()
    beat: Callable[..., Awaitable[Any]] = engine.heartbeat
    for fields, code in [
        ({"liveness": "x"}, "invalid_field liveness"),
        ({"liveness": 5}, "invalid_field liveness"),
        ({"liveness": ["idle"]}, "invalid_field liveness"),
        ({"slots": "4"}, "invalid_field slots"),
        ({"leases": [held(lease), 1]}, "invalid_field leases"),
        ({"leases": [held(lease), HeldLease(lease.id, None)]}, "invalid_field leases"),  # type: ignore[arg-type]
        ({"leases": [HeldLease([1], lease.token)]}, "invalid_field leases"),  # type: ignore[arg-type]
        ({"leases": None}, "invalid_field leases"),
    ]:
        assert await refused(beat(worker, **{"leases": [held(lease)], **fields})) == code, fields
    assert (await stored(engine, lease.id), await engine.workers.all()) == (before, workers)


async def test_liveness_and_part_status_may_be_given_as_strings(engine: Engine, worker: str) -> None:
    await engine.heartbeat(worker, [], liveness="active")  # type: ignore[arg-type]
    assert (await engine.workers.all())[0].liveness is Liveness.ACTIVE
    lease = await run(engine, worker)
    part = Part(name="a", status="completed")  # type: ignore[arg-type]
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, parts=[part]))
    assert (await engine.reads.parts(lease.id))[0].status is PartStatus.COMPLETED


PROGRESS = [
    ({"counters": [1]}, "counters_not_json"),
    ({"counters": 5}, "counters_not_json"),
    ({"counters": {"a": math.nan}}, "counters_not_json"),
    ({"step": 5}, "invalid_field step"),
    ({"percent": "50"}, "invalid_field percent"),
    ({"percent": HUGE}, "invalid_field percent"),
    ({"eta_seconds": math.inf}, "invalid_field eta_seconds"),
    ({"checkpoint": {1, 2}}, "checkpoint_not_json"),
    ({"parts": 5}, "invalid_field parts"),
    ({"parts": None}, "invalid_field parts"),
    ({"parts": ["a"]}, "invalid_field parts"),
    ({"parts": [Part(name=["a"])]}, "invalid_field parts"),  # type: ignore[arg-type]
    ({"parts": [Part(name="a", status="foo")]}, "invalid_field parts"),  # type: ignore[arg-type]
    ({"parts": [Part(name="a", status=[1])]}, "invalid_field parts"),  # type: ignore[arg-type]
    ({"parts": [Part(name="a", error=5)]}, "invalid_field parts"),  # type: ignore[arg-type]
    ({"parts": [Part(name="a", percent="1")]}, "invalid_field percent"),  # type: ignore[arg-type]
    ({"parts": [Part(name="a", total=1.5)]}, "invalid_field total"),  # type: ignore[arg-type]
    ({"parts": [Part(name="a", done=HUGE)]}, "invalid_field done"),
    ({"parts": [Part(name="a", data=LONE)]}, "part_not_json"),
]


async def test_a_progress_report_of_wrong_types_is_rejected_and_changes_nothing(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    for fields, code in PROGRESS:
        report = Progress(**{"id": lease.id, "token": lease.token, **fields})
        assert await refused(engine.progress(worker, report)) == code, fields
    assert await stored(engine, lease.id) == before


async def test_a_job_has_at_most_a_thousand_parts_in_all_its_reports(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)

    async def report(first: int, last: int) -> None:
        parts = [Part(name=f"part {n}") for n in range(first, last)]
        await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=1, parts=parts))

    await report(0, 600)
    before = await stored(engine, lease.id)
    with pytest.raises(Invalid, match="at most 1000 parts, got 1001") as caught:
        await report(600, 1001)
    assert caught.value.code == "too_many_parts"
    assert await stored(engine, lease.id) == before

    await report(600, 1000)
    await report(0, 1000)  # the same ones again are no more
    assert len(await engine.reads.parts(lease.id)) == 1000


@pytest.mark.sqlite
async def test_an_out_of_range_timestamp_in_a_row_does_not_break_reads(fresh_sqlite_url: str) -> None:
    engine = Engine(await open_store(fresh_sqlite_url))
    job = await engine.create(NewJob(type="echo", delay_seconds=60))
    for micros in (2**63 - 1, -(2**62)):
        await ask(engine, "UPDATE holdfast_jobs SET eta_at = :at WHERE id = :id RETURNING id", id=job.id, at=micros)
        assert (await engine.reads.page()).jobs == [await engine.reads.get(job.id)]
    await engine.close()


# -- opening a database --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/proc/nope/x.db", "/dev/null/x.db", "/tmp", "/" + "x" * 300 + "/a.db", "/proc/version"]
)
async def test_an_sqlite_path_that_cannot_be_opened_raises_store_unavailable_with_the_path(path: str) -> None:
    for work in (open_store, migrate):
        with pytest.raises(StoreUnavailable) as caught:
            await work(f"sqlite:///{path}")
        assert (caught.value.code, caught.value.message[:12]) == ("store_unavailable", "cannot open ")
        assert path in caught.value.message


async def test_a_file_that_is_no_database_raises_store_unavailable_and_is_not_modified(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear database, " * 100)
    for work in (open_store, migrate, missing):
        with pytest.raises(StoreUnavailable, match=r"cannot open .*letter.txt: file is not a database"):
            await work(f"sqlite:///{letter}")
    assert letter.read_text() == "Dear database, " * 100


@pytest.mark.parametrize("journal", ["wal", "delete"])
async def test_opening_a_locked_sqlite_file_raises_store_unavailable(
    journal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "BUSY_SECONDS", 0)
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
        other.execute("CREATE TABLE theirs (a)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match=r"cannot open .*jobs.db: database is locked"):
            await open_store(f"sqlite:///{tmp_path}/jobs.db")
        other.execute("ROLLBACK")
    assert await migrate(f"sqlite:///{tmp_path}/jobs.db"), "nothing of it was left behind"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h:notaport/x",
        "postgresql://127.0.0.1:99999/x",
        "postgresql://[::1/x",
        "postgresql://me:secr/et@127.0.0.1/x",
        "postgresql://127.0.0.1/x?sslmode=bogus",
        "sqlite:///nul\x00.db",
        None,
        5,
    ],
)
async def test_an_invalid_database_url_raises_an_error_without_the_password(url: Any) -> None:
    for work in (open_store, migrate, missing):
        with pytest.raises(Invalid) as caught:
            await work(url)
        assert caught.value.code == "invalid_database_url"
        assert "secr" not in caught.value.message
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("hosts", ["127.0.0.1:99999", "me:1@h:0", "h:5432,[::1]:65536"])
def test_an_invalid_port_in_a_database_url_is_named(hosts: str) -> None:
    with pytest.raises(Invalid, match="invalid port in the database URL; give one from 1 to 65535"):
        dialect_of(f"postgresql://{hosts}/x")
    assert dialect_of("postgresql://me:99999@h:5432,[::1]:5433/x?port=5434") == "postgres"


async def test_a_migration_that_the_database_refuses_is_named(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate(store_url)
    broken = Migration(9001, "9001_broken", "CREATE TABLE half (a integer);\nCREATE TABLE holdfast_jobs (a integer);")
    monkeypatch.setattr(migrating, "migrations", lambda dialect, _=(): [*migrations(dialect), broken])
    with pytest.raises(StoreUnavailable, match=r"9001_broken failed and was rolled back: .*jobs") as caught:
        await migrate(store_url)
    assert caught.value.code == "store_refused"
    assert [migration.name for migration in await missing(store_url)] == ["9001_broken"]


async def test_a_foreign_migrations_table_raises_store_unavailable(store_url: str) -> None:
    async with by_hand(store_url) as db:
        await db.run("ALTER TABLE holdfast_migrations RENAME COLUMN number TO place")
    for work in (migrate, missing):
        with pytest.raises(StoreUnavailable, match="number"):
            await work(store_url)
