"""A mistake in an extension is an error at `include` or a line in the log, and both name the extension."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import HookFailed, Invalid
from holdfast.extend import Extension, Request, Tx
from holdfast.ids import SeededIds
from holdfast.lifecycle import Machine
from holdfast.maintenance.maintainer import ExtensionMaintainer
from holdfast.model import NewJob
from holdfast.settings import Settings
from holdfast.store.extension_files import ExtensionFiles
from holdfast.worker import loop_watch
from tests.server.steps import Served, serving

TABLE = "CREATE TABLE holdfast_pages_page (id text);"


async def hook(_tx: Tx, _request: object) -> Any: ...


async def work() -> None: ...


def extension(name: str = "pages") -> Extension:
    return Extension(name, package="tests")


def with_files(folder: Path, name: str, files: dict[str, str]) -> Extension:
    made = extension(name)
    made.files = ExtensionFiles(name, "", f"{folder / name / 'extension.py'}")
    for path, text in files.items():
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return made


def in_both(text: str, number: str = "0001") -> dict[str, str]:
    return {f"schema/{dialect}/{number}_x.sql": text for dialect in ("postgres", "sqlite")}


def refusal(app: App, wrong: Extension) -> str:
    before = dict(app.extensions), dict(app.handlers), [*app.lifecycles]
    with pytest.raises(Invalid) as caught:
        app.include(wrong)
    assert (app.extensions, app.handlers, [*app.lifecycles]) == before, "nothing of it is included"
    return caught.value.message


# -- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (in_both(TABLE, "0002"), "numbered from 0001 without a gap, found 0002_x"),
        ({**in_both(TABLE), **in_both("SELECT 1;", "0003")}, "without a gap, found 0001_x, 0003_x"),
        (in_both(TABLE, "1"), "a migration is called like 0001_notes.sql, found '1_x.sql'"),
        ({"schema/sqlite/0001_a.sql": TABLE}, "schema/sqlite has 0001_a.sql and schema/postgres has no 0001"),
        ({**in_both(TABLE), "schema/postgres/0002_b.sql": ""}, "postgres has 0002_b.sql and schema/sqlite has no 0002"),
        ({"schema/0001_a.sql": TABLE}, "schema/0001_a.sql is for no database"),
        ({**in_both(TABLE), "schema/mysql/0001_a.sql": TABLE}, "schema/mysql is for no database"),
        (
            in_both("CREATE TABLE holdfast_jobs (id text)"),
            "creates table 'holdfast_jobs'; the names of what it creates",
        ),
        (
            in_both("CREATE TABLE words (id text)"),
            "0001_x creates table 'words'; the names of what it creates begin with ",
        ),
        (in_both('CREATE UNLOGGED TABLE IF NOT EXISTS "public"."words" (id text)'), "creates table 'words'"),
        (in_both(TABLE + "CREATE UNIQUE INDEX pages_id ON holdfast_pages_page (id)"), "creates index 'pages_id'"),
        (
            in_both("CREATE OR REPLACE VIEW pages AS SELECT 1"),
            "creates view 'pages'; the names of what it creates begin ",
        ),
        ({"sql/a.sql": "-- name: a\nSELECT 1", "sql/b.sql": "-- name: a\nSELECT 2"}, "two queries are called 'a'"),
        ({"sql/a.sql": "SELECT 1"}, "sql/a.sql has no query; each begins with a line -- name: NAME"),
        ({"sql/a.sql": "-- name: a\nSELECT {nwo}"}, "query 'a' has a marker that does not exist: 'nwo'"),
    ],
)
def test_invalid_files_are_rejected_at_include(files: dict[str, str], message: str, tmp_path: Path) -> None:
    said = refusal(App(name="a"), with_files(tmp_path, "pages", files))
    assert said.startswith("extension 'pages': ")
    assert message in said


def test_a_table_that_exists_already_names_both(tmp_path: Path) -> None:
    app = App(name="a")
    app.include(with_files(tmp_path, "foo", in_both("-- CREATE TABLE old\nCREATE TABLE holdfast_foo_bar_x (id text)")))
    said = refusal(app, with_files(tmp_path, "foo_bar", in_both("CREATE TABLE holdfast_Foo_Bar_x (id text)")))
    assert said == "extension 'foo_bar': 0001_x creates table 'holdfast_foo_bar_x', and so does extension 'foo'"


def test_a_table_of_the_platform_is_not_created_again(tmp_path: Path) -> None:
    said = refusal(
        App(name="a"), with_files(tmp_path, "claim", in_both("CREATE TABLE holdfast_claim_batches (id text)"))
    )
    assert said == "extension 'claim': 0001_x creates table 'holdfast_claim_batches', and so does Holdfast"


def test_a_package_that_does_not_exist_is_refused() -> None:
    assert "its package 'no.such' is none" in refusal(App(name="a"), Extension("pages", package="no.such"))


def test_files_may_be_beside_a_module_that_is_in_no_package(tmp_path: Path) -> None:
    files = {**in_both(TABLE), "sql/a.sql": "-- name: a\nSELECT 1 AS one"}
    made = with_files(tmp_path, "pages", files)
    scope = {"__name__": "single", "__file__": f"{tmp_path}/pages/single.py", "Extension": Extension}
    exec("ext = Extension('pages')", scope)
    for each in (made, scope["ext"]):
        assert isinstance(each, Extension)
        assert [one.name for one in each.migrations("sqlite")] == ["0001_x"]
        assert each.q.a.text == "SELECT 1 AS one"


def test_a_query_that_does_not_exist_suggests_the_nearest(tmp_path: Path) -> None:
    ext = with_files(tmp_path, "pages", {"sql/a.sql": "-- name: all_pages\nSELECT 1 AS one"})
    with pytest.raises(AttributeError, match=r"no query is called 'al_pages'; did you mean 'all_pages'\?"):
        _ = ext.q.al_pages


# -- hooks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda ext: ext.guard("cretae")(hook), "unknown verb 'cretae' in guard of extension 'pages'; did you mean"),
        (lambda ext: ext.guard("prune")(hook), "unknown verb 'prune' in guard of extension 'pages'"),
        (lambda ext: ext.effect()(hook), "extension 'pages': name the verbs of a effect: create, "),
        (lambda ext: ext.guard(hook), "extension 'pages': name the verbs of a guard: create, "),
        (lambda ext: ext.effect("create")(hook), "extension 'pages': effect hook must take 3 arguments"),
        (lambda ext: ext.guard("create")(lambda tx, r: None), "a guard is an async function"),
        (lambda ext: ext.guard("create")(partial(hook)), "a guard is an async function, got a partial"),
        (lambda ext: ext.guard("create", job_type=work)(hook), "job_type= of a guard is the name of a job type"),
        (lambda ext: ext.mount("/pages", "x", scope=None), "mount /pages: an ASGI application is a callable, got"),
    ],
)
def test_an_invalid_declaration_is_rejected_immediately(declare: Callable[[Extension], object], message: str) -> None:
    with pytest.raises(Invalid) as caught:
        declare(extension())
    assert message in caught.value.message


def test_a_hook_on_an_unknown_job_type_is_rejected() -> None:
    ext, app = extension(), App(name="a")
    app.job("OURS")(work)
    ext.guard("create", job_type=["OURS", "THEIRS"])(hook)
    said = "extension 'pages': hook hook is on job type 'THEIRS', which is not defined before app.include(...)"
    assert refusal(app, ext) == f"{said}; known: OURS"
    for none in (None, []):
        ext = extension()
        ext.guard("create", job_type=none)(hook)
        assert refusal(app, ext).startswith("extension 'pages': hook hook is on no job type; name one")


# -- what collides ----------------------------------------------------------------------------------------------


def test_a_job_type_that_is_defined_twice_names_both() -> None:
    first, second, app = extension("first"), extension("second"), App(name="a")
    for each in (first, second):
        each.job("WORK")(work)
    app.include(first)
    assert refusal(app, second) == "extension 'second' and extension 'first' both define job type 'WORK'"
    with pytest.raises(Invalid, match="job type 'WORK' is defined twice in app 'a' and extension 'first'"):
        app.job("WORK")(work)
    other = App(name="other")
    other.job("WORK")(work)
    assert refusal(other, second) == "extension 'second' and app 'other' both define job type 'WORK'"


def test_a_lifecycle_that_is_declared_twice_names_both() -> None:
    def machine() -> Machine:
        return Machine(
            "short",
            words={"queued": "waiting", "running": "working", "succeeded": "done", "dead": "failed"},
            moves=[
                "claim: queued -> running by worker",
                "complete: running -> succeeded by worker",
                "fail: running -> dead by worker",
                "reap: running -> dead by system",
                "release: running -> queued by worker, system",
            ],
        )

    mine = machine()
    app, first = App(name="a", lifecycles=[mine]), Extension("first", lifecycles=[machine()], package="tests")
    assert refusal(app, first) == "extension 'first' and app 'a' both declare lifecycle 'short'"
    app.include(Extension("shares", lifecycles=[mine], package="tests"))
    app = App(name="a")
    app.include(first)
    second = Extension("second", lifecycles=[machine()], package="tests")
    assert refusal(app, second) == "extension 'second' and extension 'first' both declare lifecycle 'short'"


def test_an_extension_can_be_included_in_one_app_only() -> None:
    ext, app = extension(), App(name="a")
    app.include(ext)
    assert refusal(App(name="b"), ext) == "extension 'pages' is already included in another app"
    assert refusal(app, extension()) == "app 'a' has an extension 'pages' already"


# -- what returns the wrong thing -------------------------------------------------------------------------------


async def test_a_hook_that_returns_something_fails_and_is_named(
    fresh_sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ext, app = extension(), App(Settings(database_url=fresh_sqlite_url), name="a")
    for name in ("GUARDED", "FOLLOWED", "CLAIMED"):
        ext.job(name)(work)

    @ext.guard("create", job_type="GUARDED")
    async def may(_tx: Tx, _request: object) -> bool:
        return False

    @ext.effect("create", job_type="FOLLOWED")
    async def follow(_tx: Tx, _verb: str, _job: object) -> int:
        return 1

    @ext.guard("claim", job_type="CLAIMED")
    async def now(_tx: Tx, _request: object) -> bool:
        return True

    app.include(ext)
    async with app:
        engine = await app.engine()
        for job_type, name in (("GUARDED", "may"), ("FOLLOWED", "follow")):
            caplog.clear()
            with pytest.raises(HookFailed, match="extension 'pages' failed"):
                await engine.create(NewJob(type=job_type))
            assert f"{name}: create failed and was rolled back: TypeError: it returned" in caplog.text
            assert "extension pages: " in caplog.text
        caplog.clear()
        await engine.create(NewJob(type="CLAIMED"))
        assert await engine.claim((await engine.workers.register()).id) == []
        assert "it returned bool; a hook of this kind returns Allow, Defer, RejectJob, CancelJob" in caplog.text


async def test_maintenance_that_returns_something_fails_and_is_named(
    engine: Engine, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    ext = extension()

    @ext.maintenance(every=60)
    async def sweep(_tx: Tx) -> int:
        return 3

    engine.ctx.hooks.add("pages")
    upkeep = ExtensionMaintainer(engine, clock, SeededIds(7), ext.tasks)
    for _ in range(2):
        await upkeep.round()
    assert "extension pages: maintenance sweep failed (1 times)" in caplog.text
    assert "TypeError: it returned int; a maintenance task must return None" in caplog.text


class Page(msgspec.Struct):
    title: str


ANSWERS: dict[str, Any] = {
    "dict": {"title": "x"},
    "none": None,
    "text": "<h1>",
    "object": object(),
    "page": Page("x"),
}


@pytest.fixture
async def served(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    ext, app = extension(), App(Settings(database_url=fresh_sqlite_url), name="a")

    @ext.route("GET", "/pages/{which}", scope=None, answers={200: Page})
    async def page(request: Request) -> Any:
        return ANSWERS[request.path["which"]]

    @ext.route("GET", "/text/{which}", scope=None, answers={200: "text/html"})
    async def text(request: Request) -> Any:
        return ANSWERS[request.path["which"]]

    @ext.route("GET", "/json/{which}", scope=None, answers={200: "application/json"})
    async def json(request: Request) -> Any:
        return ANSWERS[request.path["which"]]

    @ext.route("GET", "/slow", scope=None)
    async def slow(_request: Request) -> None:
        time.sleep(0.06)  # noqa: ASYNC251  that is the story

    async def mounted(_scope: Scope, _receive: Receive, send: Send) -> None:
        time.sleep(0.06)  # noqa: ASYNC251
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    ext.mount("/mounted", mounted, scope=None)
    app.include(ext)
    async with serving(fresh_sqlite_url, app=app) as served:
        yield served


async def test_a_route_answers_with_what_it_declares_or_is_named(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for path, told in (
        ("/pages/dict", "GET /pages/{which} returned dict; it declares 200: Page"),
        ("/pages/none", "GET /pages/{which} returned NoneType; it declares 200: Page"),
        ("/text/text", "GET /text/{which} returned str; it declares 200: text/html"),
        ("/json/object", "GET /json/{which} returned what is not JSON: Encoding objects of type object"),
    ):
        caplog.clear()
        answer = await served.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert f"TypeError: extension pages: {told}" in caplog.text
        assert "of extension pages) failed" in caplog.text
    assert (await served.http.get("/pages/page")).json() == {"title": "x"}
    assert (await served.http.get("/json/text")).json() == "<h1>"


async def test_a_route_or_mount_that_blocks_is_named(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.hook_guard.BLOCKED_SECONDS", 0.05)
    with caplog.at_level(logging.WARNING):
        assert (await served.http.get("/slow")).status_code == 200
        assert (await served.http.get("/mounted")).status_code == 204
    for name in ("GET /slow", "the mount /mounted"):
        assert f"extension pages: {name} blocked the event loop for 0." in caplog.text


def test_a_handler_that_blocks_is_named_with_its_extension() -> None:
    ext = extension()
    ext.job("SCAN")(work)
    run: Any = SimpleNamespace(lease=SimpleNamespace(id="7", type="SCAN"), handler=ext.handlers["SCAN"])
    assert loop_watch._named(run) == "job 7 (SCAN of extension pages)"


def test_an_app_cannot_be_created_from_a_url() -> None:
    with pytest.raises(Invalid, match=r"got a str; a database is App\(database_url=...\)"):
        App("sqlite:///jobs.db")  # type: ignore[arg-type]
