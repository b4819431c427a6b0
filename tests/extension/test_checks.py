"""What extensions add to `doctor`, to /health and to `jobs why`."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.reads.extension_checks import Probe
from holdfast.errors import Invalid
from holdfast.extend import Extension, Tx, fail, ok, warn
from holdfast.server.extensions.health import BYTES_MAX, ExtensionHealth
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.store.queries import Query
from tests.extension import toy
from tests.server.steps import serving
from tests.server.test_health import until

FOREVER = Query(
    "forever", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS all_of_them FROM n"
)
TOY = ["--app", "tests.extension.toy:app"]


async def test_doctor_and_why_call_the_extensions_of_the_app(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    toy.app.settings = Settings(database_url=store_url)
    await migrate(store_url, toy.app.extensions.values())
    job = await toy.index.enqueue("hello")
    await toy.app.close()
    await asyncio.to_thread(main, ["doctor", *TOY])
    assert "ok\tnotes.ledger\t1 entries" in capsys.readouterr().out
    await asyncio.to_thread(main, ["jobs", "why", job.id, *TOY])
    said = capsys.readouterr().out
    assert "It needs extension notes, which no live process has. Start a worker" in said
    assert "yes\tnotes\t1 entries in the ledger" in said


async def test_doctor_names_the_migrations_that_are_missing(
    fresh_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    await migrate(fresh_postgres_url)
    toy.app.settings = Settings(database_url=fresh_postgres_url)
    await asyncio.to_thread(main, ["doctor", *TOY])
    assert "lacks notes 0001_ledger; run `holdfast migrate --app tests.extension.toy:app`" in capsys.readouterr().out
    await asyncio.to_thread(main, ["migrate", *TOY])
    assert "applied notes 0001_ledger" in capsys.readouterr().out
    await asyncio.to_thread(main, ["doctor", *TOY])
    assert "ok\tschema\t0001_core is current, and notes 0001_ledger" in capsys.readouterr().out


async def test_a_server_adds_extension_fields_to_health(store_url: str) -> None:
    async with serving(store_url, app=toy.app) as served:

        async def seen() -> bool:
            return (await served.http.get("/health")).json().get("extensions") == {"notes": {"entries": 0}}

        await until(seen)


async def raises(_tx: Tx) -> None:
    raise ZeroDivisionError("a secret")


async def breaks_in_sql(tx: Tx) -> None:
    await tx.all(Query("broken", "SELECT nothing FROM nowhere"))


async def takes_too_long(tx: Tx) -> None:
    await tx.all(FOREVER)


async def no_json(_tx: Tx) -> Any:
    return object()


async def too_much(_tx: Tx) -> Any:
    return "x" * BYTES_MAX


@pytest.mark.parametrize("broken", [raises, breaks_in_sql, takes_too_long, no_json, too_much])
async def test_a_failing_health_field_does_not_affect_others(
    engine: Engine, broken: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.reads.extension_checks.PROBE_SECONDS", 2.0)

    async def works(tx: Tx) -> Any:
        return [row["one"] for row in await tx.all(Query("one", "SELECT 1 AS one"))]

    health = ExtensionHealth(engine, Clock(), [])
    for _ in range(2):
        for name, function in (("bad", broken), ("good", works)):
            await health.ask(Probe("notes", name, function))
    assert health.fields == {"notes": {"bad": {"status": "failed"}, "good": [1]}}
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    warnings = [message for message in told if "blocked the event loop" not in message]  # SQLite runs in this process
    assert len(warnings) == 1, "once for each time that it begins"
    assert warnings[0].startswith("extension notes: the field bad of /health failed: ")


async def test_doctor_prints_the_result_of_a_check(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.reads.extension_checks.PROBE_SECONDS", 2.0)

    async def found(function: Any) -> tuple[str, ...]:
        return tuple(await engine.reads.check_extension(Probe("notes", "x", function)))

    async def warns(_tx: Tx) -> Any:
        return warn("it is late", "hurry")

    assert await found(warns) == ("warn", "it is late", "hurry")
    told = "report it to the author of extension notes"
    assert await found(raises) == ("fail", "the check failed: ZeroDivisionError: a secret", told)
    assert (await found(takes_too_long))[0] == "fail"
    assert await found(no_json) == (
        "fail",
        "the check returned object; a check returns ok(...), warn(...) or fail(...)",
        told,
    )
    assert (ok("yes"), fail("no")) == (("ok", "yes", ""), ("fail", "no", ""))


def test_an_invalid_check_is_rejected_immediately() -> None:
    ext = Extension("pages", package="tests")

    async def fine(_tx: Tx) -> None: ...

    ext.check("queue")(fine)
    ext.health("queue")(fine)
    for decorator in (ext.check, ext.health):
        for name in ("queue", "Not This", 3):
            with pytest.raises(Invalid, match=r"extension 'pages': the name of a (check|field of /health)"):
                decorator(name)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="async function"):
            decorator("other")(lambda tx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(Invalid, match="explanation fine must take 2 arguments"):
        ext.explain(fine)


async def test_a_check_of_another_system_needs_no_transaction(engine: Engine) -> None:
    """It may await anything; what it raises and how long it takes is bounded in the same way."""
    ext = Extension("far", package="tests")

    @ext.check("away")
    async def away() -> object:
        await asyncio.sleep(0.01)
        return ok("it is there")

    @ext.check("gone")
    async def gone() -> object:
        raise ConnectionError("nobody answers")

    found = {probe.name: await engine.reads.check_extension(probe) for probe in ext.checks}
    assert found["away"] == ok("it is there")
    assert (found["gone"].level, found["gone"].says) == ("fail", "the check failed: ConnectionError: nobody answers")


async def test_a_check_of_another_system_may_read_the_database(engine: Engine) -> None:
    ext = Extension("far", package="tests")

    async def one() -> int:
        row = await ext.read(lambda tx: tx.one(Query("one", "SELECT 1 AS one")))
        assert row is not None
        return int(row["one"])

    @ext.check("away")
    async def away() -> object:
        return ok(f"{await one()} of one")

    ext.health("away")(one)
    assert await engine.reads.check_extension(ext.checks[0]) == ok("1 of one")
    assert await engine.reads.ask_extension(ext.health_fields[0]) == 1
    with pytest.raises(RuntimeError, match="for checks and fields of /health"):
        await one()
