"""What the OpenAPI document and `/docs` say about the routes of extensions."""

import re
from collections.abc import Sequence
from enum import Enum
from html import unescape
from typing import Annotated, Any

import msgspec
import pytest

from holdfast.errors import Invalid
from holdfast.server.app import ROUTES
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route
from holdfast.server.http.route import Header, Route
from holdfast.server.openapi.docs_page import page
from holdfast.server.openapi.document import document
from tests.server.openapi_checks import check

BYTES = {"type": "string", "format": "binary"}


class Upload(msgspec.Struct):
    file: Annotated[bytes, msgspec.Meta(description="The picture.")]
    title: Annotated[str | None, msgspec.Meta(description="Shown below it.")] = None


class Shade(Enum):
    DARK = "dark"
    LIGHT = "light"


class Album(msgspec.Struct):
    files: list[bytes]
    shade: Shade = Shade.DARK


class Optional(msgspec.Struct):
    width: int | None = None


async def handle(request: Request) -> None:
    return None


def route(method: str, path: str, **options: Any) -> Route:
    return extension_route("media", method, f"/media/{path}", handle, **{"scope": "media:use", **options})


def described(*routes: Route) -> dict[str, Any]:
    """The operations by path, of a valid document."""
    whole = document([*ROUTES, *routes])
    check(whole)
    return {path.removeprefix("/media/"): methods for path, methods in whole["paths"].items()}


def shown(routes: Sequence[Route]) -> str:
    return unescape(re.sub(r"<[^>]*>", "", page(document([*ROUTES, *routes]), {})))


def parameters(operation: dict[str, Any]) -> list[str]:
    return [each["name"] for each in operation.get("parameters", [])]


def test_a_route_with_ranges_has_their_headers_and_statuses() -> None:
    own = Header("Accept", "The formats that the client can show.", "image/avif")
    found = described(
        route("GET", "clip", answers={200: "video/mp4"}, ranges=True, headers=(own,)),
        route("GET", "page", answers={200: "text/html"}),
    )
    clip, other = found["clip"]["get"], found["page"]["get"]
    assert parameters(clip) == ["Accept", "Range", "If-Range", "If-None-Match"]
    assert clip["responses"]["206"]["content"] == clip["responses"]["200"]["content"]
    assert "video/mp4" in clip["responses"]["206"]["content"]
    assert {"304", "416"} <= clip["responses"].keys()
    assert not any("content" in clip["responses"][status] for status in ("304", "416")), "they have no body"
    assert parameters(other) == []
    assert not {"206", "304", "416"}.intersection(other["responses"])


def test_a_form_is_described_by_its_fields() -> None:
    both = route("POST", "any", body="*/*", form=Upload)
    form = route("POST", "form", body="multipart/form-data", form=Upload)
    found = described(both, form)
    schema = {
        "type": "object",
        "properties": {
            "file": {**BYTES, "description": "The picture."},
            "title": {"type": "string", "description": "Shown below it."},
        },
        "required": ["file"],
    }
    content = {"multipart/form-data": {"schema": schema}}
    assert found["any"]["post"]["requestBody"]["content"] == {"*/*": {"schema": {}}, **content}
    assert found["form"]["post"]["requestBody"]["content"] == content
    text = shown([both])
    assert "Shown below it." in text
    assert "-F 'file=@FILE'" in text
    assert "title=" not in text, "only what is required"


def test_a_form_may_have_several_files_and_a_choice() -> None:
    album = route("POST", "album", body="multipart/form-data", form=Album)
    [content] = described(album)["album"]["post"]["requestBody"]["content"].values()
    files, shade = content["schema"]["properties"].values()
    assert (files["type"], files["items"]) == ("array", BYTES)
    assert shade["enum"] == ["dark", "light"]
    assert "-F 'files=@FILE'" in shown([album])


def test_a_location_is_described() -> None:
    found = described(
        route("POST", "made", answers={201: None, 200: None}, location=True), route("POST", "done", answers={201: None})
    )
    made, done = found["made"]["post"]["responses"], found["done"]["post"]["responses"]
    assert [*made["201"]["headers"]] == ["Location"]
    assert "headers" not in made["200"]
    assert "headers" not in done["201"]


def test_a_body_without_required_fields_may_be_left_out() -> None:
    found = described(route("POST", "optional", body=Optional), route("POST", "image", body="image/png"))
    assert found["optional"]["post"]["requestBody"]["required"] is False
    assert found["image"]["post"]["requestBody"]["required"] is True


def test_every_route_may_answer_that_something_is_unavailable() -> None:
    """Also one that needs no key: it waits for the database or a storage, and has a time limit."""
    assert "503" in described(route("GET", "open", scope=None))["open"]["get"]["responses"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": dict, "body": "*/*"},
        {"form": Upload},
        {"form": Upload, "body": "image/png"},
        {"form": Upload, "body": Optional},
        {"headers": ("Accept",)},
        {"headers": (Header("Range", "", "bytes=0-9"),), "ranges": True},
        {"headers": (Header("a", "", ""), Header("A", "", ""))},
    ],
)
def test_an_invalid_description_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"extension media: POST /media/x: ") as refused:
        route("POST", "x", **wrong)
    assert refused.value.code == "invalid_route"
