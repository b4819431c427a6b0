"""The OpenAPI document: made from the routes, checked in, and true."""

import re
from typing import Any

import msgspec
import pytest

from holdfast import wire
from holdfast.model.key import parse
from holdfast.server.app import ROUTES
from holdfast.server.http.route import Route
from holdfast.server.openapi.document import document
from tests.docs import generate
from tests.server.openapi_checks import check, examples, inside
from tests.server.steps import Served, serving

DOCUMENT = document(ROUTES)
SHOWN = [route for route in ROUTES if not route.hidden]


def operation(route: Route) -> dict[str, Any]:
    path = re.sub(r"_([a-z])(?=[^{]*\})", lambda found: found[1].upper(), route.path)
    return DOCUMENT["paths"][path][route.method.lower()]


def test_the_checked_in_document_is_the_one_that_is_served() -> None:
    """If it is not, and the change is meant: `python -m tests.docs.generate`."""
    assert generate.OPENAPI.read_text(encoding="utf-8") == generate.openapi()


def test_every_route_is_described_and_nothing_else() -> None:
    described = [method for methods in DOCUMENT["paths"].values() for method in methods]
    assert len(described) == len(SHOWN)
    for route in SHOWN:
        assert operation(route)["summary"] == route.about


def test_the_document_is_valid() -> None:
    assert len(list(examples(DOCUMENT))) > 100
    check(DOCUMENT)


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


def test_a_body_is_required_if_one_of_its_fields_is() -> None:
    """An empty one counts as `{}`."""
    for route in SHOWN:
        if isinstance(route.body, type):
            needed = any(field.required for field in msgspec.structs.fields(route.body))
            assert operation(route)["requestBody"]["required"] is needed, route.name


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
