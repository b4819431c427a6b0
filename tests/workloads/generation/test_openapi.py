"""What the OpenAPI document says about the generation service is what the service does."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.server.openapi_checks import check, inside
from tests.server.steps import ADMIN
from tests.workloads.generation.steps import ON_SQLITE, Service

PATHS = {
    "/generations": {"get": 200, "post": 202},
    "/generations/{generationId}": {"get": 200},
    "/generations/{generationId}/events": {"get": 200},
    "/generations/{generationId}/cancel": {"post": 202},
    "/generations/webhooks/{jobId}": {"post": 204},
    "/assets": {"get": 200},
    "/assets/tags": {"get": 200},
    "/assets/{assetId}": {"get": 200, "patch": 200, "delete": 204},
    "/assets/{assetId}/{kind}": {"get": 200},
    "/assets/{assetId}/{kind}/signed": {"get": 200},
    "/credits": {"get": 200},
    "/credits/statement": {"get": 200},
    "/api/admin/credits/grant": {"post": 201},
    "/api/admin/credits": {"get": 200},
    "/api/admin/generations/costs": {"get": 200},
}
pytestmark = ON_SQLITE


@pytest.fixture
async def document(service: Service) -> dict[str, Any]:
    return dict((await service.http.get("/openapi.json")).json())


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Those of the service."""
    return {
        (path, method): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "Generation" in str(operation.get("tags")) or "generation" in str(operation.get("tags"))
    }


def headers(operation: dict[str, Any]) -> set[str]:
    return {each["name"] for each in operation.get("parameters", []) if each["in"] == "header"}


async def test_the_document_is_valid(document: dict[str, Any]) -> None:
    check(document)


async def test_all_routes_are_in_it(document: dict[str, Any]) -> None:
    found = operations(document)
    assert {*found} == {(path, method) for path, methods in PATHS.items() for method in methods}
    for (path, method), operation in found.items():
        assert str(PATHS[path][method]) in operation["responses"], (path, method)
        assert operation["summary"] or operation["description"]


async def test_requests_that_can_be_repeated_have_an_idempotency_key(document: dict[str, Any]) -> None:
    found = {key for key, operation in operations(document).items() if "Idempotency-Key" in headers(operation)}
    assert found == {("/generations", "post"), ("/api/admin/credits/grant", "post")}


async def test_an_accepted_generation_has_a_location(document: dict[str, Any]) -> None:
    accepted = operations(document)["/generations", "post"]["responses"]
    assert "Location" in accepted["202"]["headers"]
    assert {"402", "422", "429"} <= accepted.keys()


async def test_images_have_ranges_and_conditions(document: dict[str, Any]) -> None:
    found = operations(document)
    for path in ("/assets/{assetId}/{kind}", "/assets/{assetId}/{kind}/signed"):
        operation = found[path, "get"]
        assert headers(operation) == {"Range", "If-Range", "If-None-Match"}
        assert {"200", "206", "304", "404", "416"} <= operation["responses"].keys()
    assert "403" in found["/assets/{assetId}/{kind}/signed", "get"]["responses"]
    assert found["/assets/{assetId}/{kind}/signed", "get"]["security"] in ([], [{}])


async def test_the_body_of_a_request_has_its_limits(document: dict[str, Any]) -> None:
    body = operations(document)["/generations", "post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = body if "properties" in body else document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    fields = schema["properties"]
    assert schema["required"] == ["prompt"]
    assert schema["additionalProperties"] is False
    assert {"minimum": 64, "maximum": 2048, "default": 1024}.items() <= fields["width"].items()
    assert {"minimum": 64, "maximum": 2048, "default": 1024}.items() <= fields["height"].items()
    assert {"minimum": 1, "maximum": 4, "default": 1}.items() <= fields["count"].items()
    assert {"prompt", "negativePrompt", "seed", "style", "provider"} <= fields.keys()
    assert "user" not in fields


async def test_responses_are_as_it_says(service: Service, document: dict[str, Any]) -> None:
    made = await service.made(count=2)
    asset = made["assets"][0]["assetId"]
    await service.accepted("another")
    await service.accepted("canceled")
    canceled = (await service.get("/generations"))["generations"][0]["generationId"]
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("/generations", "post", {"json": {"prompt": "a third"}}),
        ("/generations", "get", {}),
        ("/generations/{generationId}", "get", {"generationId": made["generationId"]}),
        ("/generations/{generationId}/cancel", "post", {"generationId": canceled}),
        ("/assets", "get", {}),
        ("/assets/{assetId}", "patch", {"assetId": asset, "json": {"favorite": True, "tags": ["x"]}}),
        ("/assets/{assetId}", "get", {"assetId": asset}),
        ("/assets/tags", "get", {}),
        ("/credits", "get", {}),
        ("/credits/statement", "get", {}),
        ("/api/admin/credits/grant", "post", {"json": {"user": "alice", "amount": 1, "reason": "a test"}}),
        ("/api/admin/credits", "get", {"params": {"user": "alice"}}),
        ("/api/admin/generations/costs", "get", {}),
    ]
    found = operations(document)
    for path, method, asked in wanted:
        body, query = asked.pop("json", None), asked.pop("params", None)
        headers = ADMIN if path.startswith("/api/admin") else {}
        answer = await service.ask(method.upper(), path.format(**asked), json=body, params=query, headers=headers)
        said = found[path, method]["responses"][str(answer.status_code)]
        schema = {**said["content"]["application/json"]["schema"], "components": document["components"]}
        errors = [error.message for error in Draft202012Validator(schema).iter_errors(answer.json())]
        assert (answer.status_code, errors) == (PATHS[path][method], []), (path, answer.text)


async def test_it_says_nothing_of_what_is_blocked(document: dict[str, Any]) -> None:
    assert not any("forbidden-test" in str(each) for each in inside(document))
