"""`holdfast doctor`: what is wrong is said, with what to do about it; only a failure changes the exit code."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast.cli import main
from holdfast.cli.doctor import jobs, postgres, sqlite
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.maintenance.prune import Overdue
from holdfast.engine.reads import diagnosis
from holdfast.model import NewJob
from holdfast.store.diagnostics import PostgresState, SqliteState, TableBloat
from tests.cli.conftest import Answer, Holdfast, Meanwhile
from tests.cli.sample_jobs import claimed, dead, succeeded
from tests.servers.redis import RedisServer

DURABLE = {"fsync", "full_page_writes", "synchronous_commit"}  # the server for tests has these off, to be quick


def levels(answer: Answer) -> dict[str, str]:
    return {row[1]: row[0] for row in answer.rows}


def finding(answer: Answer, name: str) -> tuple[str, str]:
    [found] = [(row[0], row[2]) for row in answer.rows if row[1] == name]
    return found


def execute(url: str, statement: str) -> None:
    """By hand, past everything of ours."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(statement)
    else:
        asyncio.run(_execute(url, statement))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


def on(url: str, capsys: pytest.CaptureFixture[str]) -> Holdfast:
    def run(*arguments: str) -> Answer:
        return Answer(main([*arguments, "--database", url]), *capsys.readouterr())

    return run


@pytest.fixture
def on_sqlite(fresh_sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> Holdfast:
    return on(fresh_sqlite_url, capsys)


@pytest.fixture
def on_postgres(fresh_postgres_url: str, capsys: pytest.CaptureFixture[str]) -> Holdfast:
    return on(fresh_postgres_url, capsys)


def test_a_healthy_database_is_ok(holdfast: Holdfast, store_url: str) -> None:
    answer = holdfast("doctor")
    ours = {name: level for name, level in levels(answer).items() if name not in {*DURABLE, "library"}}
    assert set(ours.values()) == {"ok"}, answer.out
    assert {"settings", "database", "schema", "indexes", "maintenance", "leases", "workers", "dead jobs"} <= ours.keys()
    assert answer.code == (0 if store_url.startswith("sqlite") else 1)


def test_a_server_without_durable_commits_is_a_failure(on_postgres: Holdfast) -> None:
    answer = on_postgres("doctor")
    assert answer.code == 1
    for name in DURABLE:
        level, says = finding(answer, name)
        assert level == "fail"
        assert says.endswith(f"set {name} = on in the server")
    data = on_postgres("doctor", "--json").json
    assert data["ok"] is False
    assert {check["level"] for check in data["checks"] if check["name"] in DURABLE} == {"fail"}


def test_a_stale_postgres_schema_names_migrate(on_postgres: Holdfast, fresh_postgres_url: str) -> None:
    execute(fresh_postgres_url, "DELETE FROM holdfast_migrations")
    answer = on_postgres("doctor")
    assert answer.code == 1
    level, says = finding(answer, "schema")
    assert level == "fail"
    assert says.endswith(f"; run `holdfast migrate --database {fresh_postgres_url}`")


def test_a_schema_of_a_newer_release_is_a_warning(holdfast: Holdfast, store_url: str) -> None:
    holdfast("migrate")
    execute(store_url, "INSERT INTO holdfast_migrations (number, name) VALUES (9999, '9999_future')")
    assert finding(holdfast("doctor"), "schema")[0] == "warn"


def test_an_unreachable_server_is_a_failure_and_its_password_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    answer = on("postgresql://app:s3cret@127.0.0.1:1/jobs", capsys)("doctor")
    assert (answer.code, levels(answer)["database"]) == (1, "fail")
    assert "s3cret" not in answer.out
    assert answer.err == ""


def test_a_wrong_setting_is_a_failure(on_sqlite: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LEASE_SECOND", "5")
    answer = on_sqlite("doctor")
    assert (answer.code, levels(answer)) == (1, {"settings": "fail"})


def test_an_invalid_broker_is_a_failure_and_an_unreachable_one_a_warning(
    on_sqlite: Holdfast, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sqlite("migrate")
    assert "broker" not in levels(on_sqlite("doctor"))
    monkeypatch.setenv("HOLDFAST_DISPATCH", "redis")
    answer = on_sqlite("doctor")
    assert (answer.code, finding(answer, "broker")[0]) == (1, "fail")
    monkeypatch.setenv("HOLDFAST_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    answer = on_sqlite("doctor")
    assert (answer.code, finding(answer, "broker")[0]) == (0, "warn")
    assert "hunter2" not in answer.out
    monkeypatch.setenv("HOLDFAST_REDIS_URL", redis_server.url)
    assert finding(on_sqlite("doctor"), "broker") == ("ok", "redis is reachable")


def test_a_missing_index_is_a_failure(holdfast: Holdfast, store_url: str) -> None:
    holdfast("migrate")
    execute(store_url, "DROP INDEX holdfast_jobs_parked")
    answer = holdfast("doctor")
    assert answer.code == 1
    assert finding(answer, "indexes")[1].startswith("missing: holdfast_jobs_parked; ")


def test_an_invalid_index_is_a_failure(on_postgres: Holdfast, fresh_postgres_url: str) -> None:
    execute(
        fresh_postgres_url, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'holdfast_jobs_parked'::regclass"
    )
    level, says = finding(on_postgres("doctor"), "indexes")
    assert (level, says.startswith("not valid: holdfast_jobs_parked")) == ("fail", True)


def test_a_table_that_is_never_vacuumed_is_a_failure(on_postgres: Holdfast, fresh_postgres_url: str) -> None:
    execute(fresh_postgres_url, "ALTER TABLE holdfast_jobs SET (autovacuum_enabled = false)")
    level, says = finding(on_postgres("doctor"), "autovacuum")
    assert (level, says.startswith("is off for holdfast_jobs; ")) == ("fail", True)


def test_a_clock_that_is_an_hour_off_is_a_warning(on_postgres: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Clock.now
    monkeypatch.setattr(Clock, "now", lambda clock: real(clock) + timedelta(hours=3))
    level, says = finding(on_postgres("doctor"), "clock")
    assert (level, says.startswith("the server clock is 3 h behind this machine's")) == ("warn", True)


@contextmanager
def open_transaction(url: str) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    connection: Any = loop.run_until_complete(asyncpg.connect(url))
    loop.run_until_complete(connection.execute("BEGIN; SELECT 1"))
    try:
        yield
    finally:
        loop.run_until_complete(connection.close())
        loop.close()


def test_an_old_transaction_is_a_warning(
    on_postgres: Holdfast, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_transaction(fresh_postgres_url):
        young = finding(on_postgres("doctor"), "transactions")
        monkeypatch.setattr(postgres, "TRANSACTION_SECONDS", 0)
        old = finding(on_postgres("doctor"), "transactions")
    assert young[0] == "ok"
    assert old[0] == "warn"
    assert "(idle in transaction); it blocks vacuum" in old[1]


HEALTHY = PostgresState(
    version=160_004,
    replica=False,
    settings={"fsync": "on", "full_page_writes": "on", "synchronous_commit": "local", "autovacuum": "on"},
    indexes={},
    bloat=[],
    oldest=None,
)


def test_a_replica_and_an_old_server_are_failures() -> None:
    assert postgres._version(HEALTHY).says == "PostgreSQL 16.4"
    assert postgres._version(msgspec.structs.replace(HEALTHY, replica=True)).level == "fail"
    assert postgres._version(msgspec.structs.replace(HEALTHY, version=130_010)).level == "fail"
    assert {found.level for found in postgres._durable(HEALTHY)} == {"ok"}


def test_disabled_or_lagging_autovacuum_is_reported() -> None:
    off = msgspec.structs.replace(HEALTHY, settings={**HEALTHY.settings, "autovacuum": "off"})
    assert [found.level for found in postgres._vacuum(off)] == ["fail", "ok"]
    crowded = msgspec.structs.replace(
        HEALTHY, bloat=[TableBloat("jobs", 50_000, 20_000, False), TableBloat("parts", 9, 9_000, False)]
    )
    _, dead_rows = postgres._vacuum(crowded)
    assert (dead_rows.level, dead_rows.says) == ("warn", "jobs has 20,000 dead and 50,000 live")


@pytest.mark.parametrize(("version", "level"), [("3.51.2", "warn"), ("3.51.3", "ok"), ("3.52.0", "ok"), ("4.0", "ok")])
def test_an_old_sqlite_library_is_a_warning_and_no_failure(version: str, level: str) -> None:
    state = SqliteState(version=version, journal_mode="wal", faults=[], indexes={})
    assert sqlite._version(state).level == level


def test_a_file_without_wal_or_with_corruption_is_a_failure() -> None:
    state = SqliteState(version="3.52.0", journal_mode="delete", faults=["row 7 missing"], indexes={})
    assert (sqlite._journal(state).level, sqlite._integrity(state).level) == ("fail", "fail")


def test_a_file_that_others_can_read_is_a_warning(on_sqlite: Holdfast, tmp_path: Path) -> None:
    on_sqlite("migrate")
    (tmp_path / "jobs.db").chmod(0o644)
    answer = on_sqlite("doctor")
    assert answer.code == 0
    level, says = finding(answer, "permissions")
    assert (level, says.startswith("other users can read jobs.db")) == ("warn", True)


def test_a_damaged_file_is_a_failure(on_sqlite: Holdfast, tmp_path: Path) -> None:
    for number in range(20):
        on_sqlite("jobs", "create", f"type-{number}", "--payload", '{"long": "' + "x" * 5000 + '"}')
    with (tmp_path / "jobs.db").open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096 * 3)
    answer = on_sqlite("doctor")
    assert (answer.code, "fail" in levels(answer).values()) == (1, True), answer.out


def test_a_file_that_is_no_database_is_a_failure(on_sqlite: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("this is not a database at all" * 100)
    answer = on_sqlite("doctor")
    assert (answer.code, levels(answer)["database"]) == (1, "fail")


def test_stuck_jobs_are_warnings(holdfast: Holdfast, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SWEEP_SECONDS", "0.001")
    monkeypatch.setenv("HOLDFAST_STARTUP_GRACE_SECONDS", "0")

    async def story(engine: Engine) -> None:
        await dead(engine, "E_DISK")
        await claimed(engine, type="slow", policy={"lease_seconds": 0.05, "heartbeat_seconds": 0.01})
        await engine.create(NewJob(type="render", queue="video", requires=["cuda", "hdr"]))

    meanwhile(story)
    time.sleep(0.3)  # the lease is over after a sixth of it
    answer = holdfast("doctor")
    assert finding(answer, "maintenance")[0] == "warn"
    assert finding(answer, "leases")[1].startswith("1 job still running although the lease expired")
    assert finding(answer, "workers")[1].startswith(
        "no live worker can claim 'render' of queue 'video' (needs cuda, hdr); "
    )
    assert finding(answer, "dead jobs")[1].startswith("1 job died in the last hour: E_DISK 1; ")
    assert {level for name, level in levels(answer).items() if name not in DURABLE} == {"ok", "warn"}


def test_waiting_jobs_of_a_paused_queue_are_no_warning(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    """Of that very queue: another one, one of another tenant, or one that was opened again is none."""
    holdfast("jobs", "create", "a", "--queue", "mail")
    holdfast("queues", "pause", "films")
    meanwhile(lambda engine: engine.queues.pause("mail", tenant="acme"))
    assert finding(holdfast("doctor"), "workers")[0] == "warn"
    holdfast("queues", "pause", "mail")
    assert finding(holdfast("doctor"), "workers")[0] == "ok"
    holdfast("queues", "resume", "mail")
    assert finding(holdfast("doctor"), "workers")[0] == "warn"


def test_only_job_types_that_wait_now_are_checked(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    """Not one that is finished, nor one whose time is to come."""
    holdfast("jobs", "create", "later", "--delay", "1h")

    async def story(engine: Engine) -> None:
        await dead(engine, type="done")
        [worker] = await engine.workers.all()
        await engine.workers.disable(worker.id)

    meanwhile(story)
    assert finding(holdfast("doctor"), "workers")[0] == "ok"
    holdfast("jobs", "create", "now")
    says = finding(holdfast("doctor"), "workers")[1]
    assert says.startswith("no live worker can claim 'now' of queue 'default'; ")


def test_a_type_that_no_live_worker_runs_is_named(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(lambda engine: engine.workers.register(metadata={"jobTypes": ["mail"]}))
    holdfast("jobs", "create", "mail")
    assert finding(holdfast("doctor"), "workers")[0] == "ok"
    holdfast("jobs", "create", "film")
    says = finding(holdfast("doctor"), "workers")[1]
    assert says.startswith("no live worker can claim 'film' of queue 'default' (no live worker runs this type); ")


def test_idle_maintenance_is_no_warning(
    holdfast: Holdfast, meanwhile: Meanwhile, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is due or done needs none; one whose time is to come needs a sweep, and one of late."""

    async def story(engine: Engine) -> None:
        await dead(engine)
        await engine.create(NewJob(type="due"))

    meanwhile(story)
    assert finding(holdfast("doctor"), "maintenance") == ("ok", "has never run")
    holdfast("jobs", "create", "later", "--delay", "1h")
    assert finding(holdfast("doctor"), "maintenance")[0] == "warn"
    meanwhile(lambda engine: engine.maintenance.reap())
    assert finding(holdfast("doctor"), "maintenance")[0] == "ok"
    monkeypatch.setenv("HOLDFAST_SWEEP_SECONDS", "0.001")
    time.sleep(0.1)  # more than six of those
    level, says = finding(holdfast("doctor"), "maintenance")
    assert (level, says.startswith("last ran at 20")) == ("warn", True)


def test_a_sweep_of_another_loop_does_not_count_as_maintenance(holdfast: Holdfast, store_url: str) -> None:
    holdfast("jobs", "create", "later", "--delay", "1h")
    now = "9999999999999999" if store_url.startswith("sqlite") else "now()"
    execute(store_url, f"INSERT INTO holdfast_sweeps (name, swept_at) VALUES ('another', {now})")
    level, says = finding(holdfast("doctor"), "maintenance")
    assert (level, says.startswith("has never run: ")) == ("warn", True)


def test_only_dead_jobs_of_the_last_hour_are_counted(
    holdfast: Holdfast, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(engine: Engine) -> None:
        await dead(engine, "E_DISK")
        await succeeded(engine)
        await engine.cancel((await engine.create(NewJob(type="a"))).id)

    meanwhile(story)
    assert finding(holdfast("doctor"), "dead jobs")[1].startswith("1 job died in the last hour: E_DISK 1; ")
    monkeypatch.setattr(diagnosis, "DEAD_SECONDS", 0.0)
    assert finding(holdfast("doctor"), "dead jobs")[0] == "ok"


def test_a_lease_that_has_just_expired_is_no_warning(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(lambda engine: claimed(engine, policy={"lease_seconds": 0.05, "heartbeat_seconds": 0.01}))
    time.sleep(0.1)
    assert finding(holdfast("doctor"), "leases") == ("ok", "no expired lease is waiting to be reaped")


def test_jobs_that_are_kept_because_of_a_missing_extension_are_reported() -> None:
    found = jobs._retention(Overdue(jobs=3), ["notes"])
    assert (found.level, "; no live process has extension notes, which is needed" in found.says) == ("warn", True)
    assert "notes" not in jobs._retention(Overdue(deliveries=3), ["notes"]).says
