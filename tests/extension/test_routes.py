"""Routes and mounts of an app's extensions: served with the app, and never two at one place."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx2
import msgspec
import pytest

from holdfast import App
from holdfast.errors import Invalid
from holdfast.extend import Extension, Request
from holdfast.model.key import NewKey
from tests.cli.background import Background, until
from tests.extension import toy
from tests.server.steps import ADMIN, bearer, serving

REPOSITORY = str(Path(__file__).parents[2])


async def test_a_server_serves_the_routes_and_mounts_of_its_app(store_url: str) -> None:
    async with serving(store_url, app=toy.app) as served:
        _, text = await served.engine.keys.create(NewKey(scopes=["notes:write", "notes:read"]))
        made = await served.http.post("/notes", json={"text": "hello"}, headers=bearer(text))
        assert made.status_code == 201, made.text
        note = await served.http.get(f"/notes/{made.json()['id']}", headers=bearer(text))
        assert note.json()["entries"] == ["reserve"], "the effects of the app run in its server"
        assert (await served.http.get("/notes/none", headers=bearer(text))).json()["code"] == "note_not_found"
        assert (await served.http.get("/notes-about", headers=bearer(text))).text == "notes"
        _, other = await served.engine.keys.create(NewKey())
        for path in ("/notes/x", "/notes-about"):
            assert (await served.http.get(path, headers=bearer(other))).status_code == 403
        refused = await served.http.post("/notes", json={"text": "forbidden"}, headers=bearer(text))
        assert (refused.status_code, refused.json()["code"]) == (422, "note_refused")


async def test_extension_routes_are_in_the_openapi_document_under_their_tag(fresh_sqlite_url: str) -> None:
    async with serving(fresh_sqlite_url, app=toy.app) as served:
        described = (await served.http.get("/openapi.json")).json()
        assert described["paths"]["/notes"]["post"]["tags"] == ["notes"]
        [about] = [tag["description"] for tag in described["tags"] if tag["name"] == "notes"]
        assert "`notes:write`: write notes" in about
        words = {"kind": "client", "scopes": ["notes:wrote"]}
        refused = await served.http.post("/api/admin/keys", json=words, headers=ADMIN)
        assert "notes:wrote" in refused.json()["detail"]


def test_dev_serves_extension_routes_and_runs_their_jobs(tmp_path: Path) -> None:
    variables = {"PYTHONPATH": REPOSITORY, "HOLDFAST_DATABASE_URL": f"sqlite:///{tmp_path}/jobs.db"}
    command = ("dev", "--app", "tests.extension.toy:app", "--port", "0")
    with Background(*command, folder=tmp_path, **variables) as process:
        process.until_it_says("HTTP API: http")
        process.until_it_says("Ctrl-C stops it")
        assert re.search(r"jobs create \w+ --payload '.*' --app tests.extension.toy:app\n", process.said), (
            "with its hooks"
        )
        found = re.search(r"HTTP API: (http://[^,]+),", process.said)
        assert found is not None
        with httpx2.Client(base_url=found[1], timeout=60) as http:
            made = http.post("/notes", json={"text": "hello"})
            assert made.status_code == 201, made.text
            until(lambda: http.get(f"/notes/{made.json()['id']}").json()["entries"] == ["commit", "reserve"])
        assert process.end() == 0


async def test_a_route_sees_the_settings_of_its_extension(fresh_sqlite_url: str) -> None:
    pages = Extension("pages", settings=Titled, package="tests")

    @pages.route("GET", "/pages", scope=None, answers={200: "application/json"})
    async def get(request: Request) -> str:
        return request.settings.title

    app = App(name="paged", database_url=fresh_sqlite_url)
    app.include(pages)
    pages.settings = Titled("of pages")
    async with serving(fresh_sqlite_url, app=app) as served:
        assert (await served.http.get("/pages")).json() == "of pages"


async def test_routes_for_operators_need_credentials_on_loopback_too(fresh_sqlite_url: str) -> None:
    """Where no keys exist yet, clients need none; operators do."""
    pages = Extension("pages", package="tests")
    pages.route("GET", "/pages", scope=pages.scope("read", "read pages"), answers={204: None})(handler)
    pages.route("DELETE", "/pages", scope="admin:operate", answers={204: None})(handler)
    app = App(name="operated", database_url=fresh_sqlite_url)
    app.include(pages)
    async with serving(fresh_sqlite_url, app=app) as served:
        assert (await served.http.get("/pages")).status_code == 204
        assert (await served.http.delete("/pages")).status_code == 401
        assert (await served.http.delete("/pages", headers=ADMIN)).status_code == 204


class Titled(msgspec.Struct):
    title: str


# -- collisions -------------------------------------------------------------------------------------------------


class Note(msgspec.Struct):
    """Called like a type of the toy."""


class JobView(msgspec.Struct):
    """Called like a type of the core."""


class Holder(msgspec.Struct):
    inside: JobView


async def handler(request: Request) -> None: ...


async def guard(tx: object, request: object) -> None: ...


def routed(method: str = "GET", path: str = "/pages", answers: object = None) -> Callable[[Extension], object]:
    return lambda ext: ext.route(method, path, scope=None, answers={200: answers})(handler)


@pytest.mark.parametrize(
    ("declare", "both"),
    [
        (routed("POST", "/jobs"), ("extension pages", "the core")),
        (routed("POST", "/notes"), ("extension pages", "extension notes")),
        (routed(path="/notes-about/x"), ("extension pages", "extension notes")),
        (lambda ext: ext.mount("/notes", handler, scope=None), ("extension pages", "extension notes")),
        (lambda ext: ext.mount("/jobs", handler, scope=None), ("extension pages", "the core")),
        (routed(answers=Note), ("GET /pages of the extension pages", "POST /notes of the extension notes")),
        (routed(answers=JobView), ("GET /pages of the extension pages", "GET /jobs/{job_id} of the core")),
        (routed(answers=Holder), ("GET /jobs/{job_id} of the core", "JobView")),
    ],
)
def test_colliding_routes_are_an_error_at_include_that_names_both(
    declare: Callable[[Extension], object], both: tuple[str, str]
) -> None:
    pages, app = Extension("pages", package="tests"), App(name="other")
    declare(pages)
    app.extensions["notes"] = toy.ext
    with pytest.raises(Invalid) as refused:
        app.include(pages)
    assert all(name in refused.value.message for name in both), refused.value.message
    assert "pages" not in app.extensions


@pytest.mark.parametrize("kind", [dict, list[int], object()])
def test_a_response_type_without_fields_is_rejected(kind: object) -> None:
    pages = Extension("pages", package="tests")
    with pytest.raises(Invalid, match="GET /pages") as refused:  # noqa: PT012
        routed(answers=kind)(pages)
        App(name="other").include(pages)
    assert refused.value.code == "invalid_route"


def test_declaring_a_route_after_include_is_rejected() -> None:
    pages, app = Extension("pages", package="tests"), App(name="other")
    app.include(pages)
    with pytest.raises(Invalid, match="GET /pages is declared after"):
        routed()(pages)
    with pytest.raises(Invalid, match="declared after"):
        pages.mount("/pages", handler, scope=None)
    with pytest.raises(Invalid, match="job type LATE is declared after"):
        pages.job("LATE")(handler)
    with pytest.raises(Invalid, match="maintenance function handler is declared after"):
        pages.maintenance(every=60)(handler)
    with pytest.raises(Invalid, match="guard guard is declared after"):
        pages.guard("create")(guard)


def test_a_scope_is_declared_once_and_named_by_a_verb() -> None:
    pages = Extension("pages", package="tests")
    assert pages.scope("write", "write pages") == "pages:write"
    for verb in ("write", "Write", "a b", ""):
        with pytest.raises(Invalid, match="pages"):
            pages.scope(verb, "again")
