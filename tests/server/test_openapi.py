"""The OpenAPI document: made from the routes, checked in, and true."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from holdfast import wire
from holdfast.model.key import parse
from holdfast.server.app import ROUTES
from holdfast.server.http.route import Route
from holdfast.server.openapi.document import document
from tests.docs import generate
from tests.server.steps import Served, serving

DOCUMENT = document(ROUTES)
SHOWN = [route for route in ROUTES if not route.hidden]


def operation(route: Route) -> dict[str, Any]:
    path = re.sub(r"_([a-z])(?=[^{]*\})", lambda found: found[1].upper(), route.path)
    return DOCUMENT["paths"][path][route.method.lower()]


def inside(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inside(inner)


def test_the_checked_in_document_is_the_one_that_is_served() -> None:
    """If it is not, and the change is meant: `python -m tests.docs.generate`."""
    assert generate.OPENAPI.read_text(encoding="utf-8") == generate.openapi()


def test_every_route_is_described_and_nothing_else() -> None:
    described = [method for methods in DOCUMENT["paths"].values() for method in methods]
    assert len(described) == len(SHOWN)
    for route in SHOWN:
        assert operation(route)["summary"] == route.about


def test_every_reference_has_a_target() -> None:
    for each in inside(DOCUMENT):
        if isinstance(reference := each.get("$ref"), str):
            found: Any = DOCUMENT
            for name in reference.removeprefix("#/").split("/"):
                found = found[name]


def test_names_of_operations_are_unique() -> None:
    names = [operation(route)["operationId"] for route in SHOWN]
    assert len(names) == len(set(names))


def test_every_type_of_the_document_has_its_own_name() -> None:
    """Two types of one name would be told apart by their modules, which are nobody's business."""
    assert all(re.fullmatch(r"[A-Za-z]+", name) for name in DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize("route", SHOWN, ids=lambda route: route.name)
def test_every_example_can_be_decoded_by_its_type(route: Route) -> None:
    described = operation(route)
    examples = [(route.body, described["requestBody"])] if route.body is not None else []
    examples += [(kind, described["responses"][str(status)]) for status, kind in route.answers.items()]
    for kind, said in examples:
        if isinstance(kind, type):
            msgspec.convert(said["content"]["application/json"]["example"], kind)


def examples() -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(where, schema, example) of every example in the document."""
    operations = [*DOCUMENT["paths"].items(), *DOCUMENT["webhooks"].items()]
    for path, methods in operations:
        for method, described in methods.items():
            where = f"{method} {path}"
            holders = [*described.get("parameters", [])]
            for said in (described.get("requestBody", {}), *described["responses"].values()):
                holders += said.get("content", {}).values()
            yield from ((where, holder["schema"], holder["example"]) for holder in holders if "example" in holder)


def test_every_example_is_valid_by_its_schema() -> None:
    """As a stranger's validator reads the document, not as our own types do."""
    found = list(examples())
    assert len(found) > 100
    wrong = []
    for where, schema, example in found:
        validator = Draft202012Validator(
            {**schema, "components": DOCUMENT["components"]}, format_checker=FormatChecker()
        )
        wrong += [f"{where}: {error.json_path}: {error.message}" for error in validator.iter_errors(example)]
    assert wrong == []


def test_every_key_in_an_example_has_the_real_format() -> None:
    keys = [each["apiKey"] for each in inside(DOCUMENT) if isinstance(each.get("apiKey"), str)]
    assert len(keys) >= 2
    assert all(parse(key.encode()) for key in keys)


@pytest.mark.parametrize("route", SHOWN, ids=lambda route: route.name)
def test_the_security_of_every_route_is_described(route: Route) -> None:
    described = operation(route)
    if route.scope is None:
        assert described["security"] == []
        return
    assert {"key": [route.scope]} in described["security"]
    assert {"401", "403", "429", "503"} <= described["responses"].keys()
    assert not route.body or {"400", "413", "415", "422"} <= described["responses"].keys()


def test_request_schemas_forbid_additional_properties() -> None:
    for route in SHOWN:
        if route.body is not None:
            assert DOCUMENT["components"]["schemas"][route.body.__name__]["additionalProperties"] is False


def test_the_problem_schema_matches_real_problems() -> None:
    assert set(DOCUMENT["components"]["schemas"]["Problem"]["properties"]) == set(wire.Problem.__struct_encode_fields__)


async def test_the_document_is_public_and_cached(fresh_sqlite_url: str) -> None:
    async with serving(fresh_sqlite_url) as served:
        first = await served.http.get("/openapi.json")
        assert first.json() == DOCUMENT
        assert first.headers["content-type"] == "application/json"
        again = await served.http.get("/openapi.json", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        changed = await served.http.get("/openapi.json", headers={"If-None-Match": '"another"'})
        assert changed.status_code == 200


async def test_head_returns_the_headers_of_get(served: Served) -> None:
    answer = await served.http.head("/openapi.json")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 10_000
