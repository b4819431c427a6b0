"""What the OpenAPI document says about the image service is what the service does."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.settings import Settings
from holdfast.workloads.images.service import app
from tests.server.openapi_checks import check
from tests.server.steps import serving

VARIANT, SIGNED = "/images/{imageId}/{variant}", "/images/{imageId}/{variant}/signed"


@pytest.fixture
async def document(fresh_sqlite_url: str) -> AsyncIterator[dict[str, Any]]:
    app.settings = Settings(database_url=fresh_sqlite_url)
    async with serving(fresh_sqlite_url, app=app) as served:
        yield (await served.http.get("/openapi.json")).json()
    await app.close()


def headers(operation: dict[str, Any]) -> set[str]:
    return {each["name"] for each in operation["parameters"] if each["in"] == "header"}


async def test_the_document_is_valid(document: dict[str, Any]) -> None:
    check(document)


async def test_requests_that_can_be_repeated_have_an_idempotency_key(document: dict[str, Any]) -> None:
    for path in ("/images", "/images/{imageId}/reprocess"):
        assert headers(document["paths"][path]["post"]) == {"Idempotency-Key"}, path


async def test_variants_have_ranges_and_conditions(document: dict[str, Any]) -> None:
    ranges = {"Range", "If-Range", "If-None-Match"}
    for path, wanted in ((VARIANT, {"Accept", *ranges}), (SIGNED, ranges)):
        operation = document["paths"][path]["get"]
        assert headers(operation) == wanted, path
        assert {"200", "206", "304", "404", "416", "503"} <= operation["responses"].keys(), path


async def test_an_upload_is_bytes_or_a_form(document: dict[str, Any]) -> None:
    body = document["paths"]["/images"]["post"]["requestBody"]
    assert body["required"] is True
    assert [*body["content"]] == ["*/*", "multipart/form-data"]
    form = body["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["file"]
    kinds = {name: (inner["type"], inner.get("format")) for name, inner in form["properties"].items()}
    assert kinds == {"file": ("string", "binary"), "variants": ("string", None)}
    assert all(inner["description"] for inner in form["properties"].values())


async def test_what_is_accepted_has_a_location(document: dict[str, Any]) -> None:
    accepted = [
        operation["responses"]["202"]
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if path.startswith("/images") and "202" in operation["responses"]
    ]
    assert len(accepted) == 4
    assert all("Location" in each["headers"] for each in accepted)


async def test_what_is_made_again_needs_no_body(document: dict[str, Any]) -> None:
    assert document["paths"]["/images/{imageId}/reprocess"]["post"]["requestBody"]["required"] is False
