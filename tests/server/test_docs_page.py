"""The page for people: complete, without scripts, without anything from elsewhere, and true to its codes."""

import json
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import httpx2
import pytest

from holdfast.server.api.docs_routes import codes
from holdfast.server.app import ROUTES
from holdfast.server.openapi import descriptions
from holdfast.server.openapi.docs_page import SERVER, page
from holdfast.server.openapi.document import document
from holdfast.server.openapi.examples import ELSEWHERE, LEFT_OUT
from tests.docs import generate
from tests.server.steps import serving

DOCUMENT = document(ROUTES)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>`</style>"


class Seen(HTMLParser):
    """The tags of a page, what they say, and whether each that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [str(value) for name, value in attrs if name == "id"]
        self.links += [str(value) for name, value in attrs if name == "href"]
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture
async def answer(fresh_sqlite_url: str) -> AsyncIterator[httpx2.Response]:
    async with serving(fresh_sqlite_url) as served:
        yield await served.http.get("/", follow_redirects=True)


async def test_the_page_is_served_at_the_root_without_scripts(answer: httpx2.Response) -> None:
    """SEC-34."""
    assert answer.status_code == 200
    assert answer.url.path == "/docs"
    seen = Seen(answer.text)
    assert not {"script", "img", "iframe", "link", "object", "form"}.intersection(seen.tags)
    assert seen.attributes <= {"id", "href", "charset", "lang", "class", "name", "content"}
    assert all(link.startswith(("#", "/")) for link in seen.links)


async def test_the_examples_use_the_address_of_the_request(fresh_sqlite_url: str) -> None:
    async with serving(fresh_sqlite_url) as served:
        asked = await served.http.get("/docs")
        assert f"curl {served.url}/jobs " in asked.text
        assert SERVER not in asked.text
        proxied = {"Host": "jobs.example.com", "X-Forwarded-Proto": "https"}
        assert "curl https://jobs.example.com/jobs " in (await served.http.get("/docs", headers=proxied)).text
        for host in ("a'b", "<script>", "x y", "evil.example/path"):
            assert host not in (await served.http.get("/docs", headers={"Host": host})).text


def test_the_page_has_a_viewport_for_phones() -> None:
    text = page(DOCUMENT, codes())
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "<table" not in text  # wider than a phone


def test_routes_are_in_sections_and_every_parameter_is_explained() -> None:
    sections = ["Jobs", "Worker API", "Admin", "Webhooks", "Keys", "Health"]
    assert [tag["name"] for tag in DOCUMENT["tags"]] == sections
    operations = [each for methods in DOCUMENT["paths"].values() for each in methods.values()]
    assert {tag for each in operations for tag in each["tags"]} == {tag["name"] for tag in DOCUMENT["tags"]}
    silent = [
        (each["operationId"], parameter["name"])
        for each in operations
        for parameter in each.get("parameters", [])
        if not parameter.get("description")
    ]
    assert silent == []
    sent = {
        name: schema for name, schema in DOCUMENT["components"]["schemas"].items() if "additionalProperties" in schema
    }
    assert [
        (name, field)
        for name, schema in sent.items()
        for field, inner in schema.get("properties", {}).items()
        if not inner.get("description")
    ] == []


def test_no_removed_parameter_is_explained() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    queries = {route.query.__name__: route.query for route in ROUTES if route.query is not None}
    for place, name in descriptions.ELSEWHERE:
        fields = (
            queries[place].__struct_encode_fields__ if place in queries else schemas.get(place, {}).get("properties")
        )
        assert place == "path" or name in (fields or ()), (place, name)


async def test_the_page_has_a_strict_content_security_policy(answer: httpx2.Response) -> None:
    """SEC-34: its own style by its hash, and no frame around it."""
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_every_route_type_and_error_code_has_an_anchor(answer: httpx2.Response) -> None:
    """`type` of a problem is `/docs#<code>`."""
    seen = Seen(answer.text)
    assert len(seen.ids) == len(set(seen.ids))
    operations = [each["operationId"] for methods in DOCUMENT["paths"].values() for each in methods.values()]
    wanted = {*operations, *codes(), *(f"type-{name}" for name in DOCUMENT["components"]["schemas"])}
    assert wanted <= set(seen.ids)
    assert {link.removeprefix("#") for link in seen.links if link.startswith("#")} <= set(seen.ids)


def test_the_error_codes_are_those_of_the_errors_page() -> None:
    """If they are not: `python -m tests.docs.generate`."""
    written = generate.codes(generate.ERRORS.read_text(encoding="utf-8"))
    assert generate.CODES.read_text(encoding="utf-8") == written
    assert "job_not_found" in codes()


def test_values_are_escaped_in_the_page() -> None:
    """SEC-34: every value is escaped, wherever it comes from."""

    def hostile(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: hostile(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [hostile(inner) for inner in value]
        return value + HOSTILE if isinstance(value, str) and not value.startswith("#/") else value

    poisoned = json.loads(json.dumps(DOCUMENT))
    for methods in poisoned["paths"].values():
        for operation in methods.values():
            operation["summary"], operation["parameters"] = HOSTILE, hostile(operation.get("parameters", []))
    poisoned["info"] = hostile(poisoned["info"])
    schemas = poisoned["components"]["schemas"]
    schemas[HOSTILE] = hostile(next(iter(schemas.values())))
    text = page(poisoned, {"a_code": (HOSTILE, HOSTILE)})
    assert "<script" not in text
    assert "<img" not in text
    assert not {"script", "img"}.intersection(Seen(text).tags)


def test_no_removed_type_is_described() -> None:
    assert set(ELSEWHERE) | set(LEFT_OUT) <= set(DOCUMENT["components"]["schemas"])
