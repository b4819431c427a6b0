"""Builds the OpenAPI document from the route table and the message types in `holdfast.wire`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from holdfast import wire
from holdfast.errors import Invalid
from holdfast.model.key import extension_of
from holdfast.model.webhook import EVENTS
from holdfast.server.auth.authenticator import ADMIN
from holdfast.server.http.problems import PROBLEM
from holdfast.server.http.request_body import all_optional
from holdfast.server.http.route import EVENT_STREAM, Header, Route
from holdfast.server.http.streamed_body import MULTIPART
from holdfast.server.openapi.descriptions import described
from holdfast.server.openapi.examples import JOB, PATH_EXAMPLES, TIME, OpenApiExamples

Json = dict[str, Any]

ABOUT = """Durable jobs over HTTP. Clients create jobs and read their status; workers claim jobs and report the outcome.

Keys go into the header `Authorization: Bearer`. A key looks like `holdfast_client_...`, `holdfast_worker_...` or
`holdfast_admin_...`; `holdfast keys create` makes one. On a loopback address clients need no key until the first client
key exists. Operators may send the admin secret in `X-Admin-Secret` instead. Browsers may sign in at `POST /session`;
unsafe requests with the session cookie need the CSRF token in `X-CSRF-Token`.

Names are in camelCase; requests may use snake_case. Unknown fields are rejected with 422. Errors are
`application/problem+json` with a stable `code`."""

# Tags in display order.
TAGS = {
    "Jobs": "For clients: create jobs, read their status, cancel them, stream their events.",
    "Worker API": "For workers in any language: claim jobs, renew leases, report progress and outcomes.",
    "Admin": "For operators: inspect and manage jobs, queues, workers, settings and the audit log.",
    "Webhooks": "For operators: send job events to a URL, and inspect the deliveries.",
    "Keys": "For operators: create, rotate and revoke keys; sign in to a browser session with one.",
    "Health": "Health checks, metrics and API documentation.",
}
REF = "#/components/schemas/{name}"
STREAM_EXAMPLE = (
    f'id: 3\nevent: complete\ndata: {{"jobId":"{JOB}","seq":3,"at":"{TIME}",'
    '"verb":"complete","jobType":"send-email","status":"COMPLETED","from":"running","to":"succeeded"}\n\n'
)

# Error statuses that all routes of a kind share.
GUARDED = (401, 403, 429)
WITH_BODY = (400, 408, 413, 415, 422)
WITH_QUERY = (400, 422)
STORED = (503,)
LOCATED = (201, 202)
LOCATION: Json = {"Location": {"schema": {"type": "string"}, "description": "The path at which it can be read."}}

# Headers of a webhook message (Standard Webhooks).
SIGNED = (
    Header("webhook-id", "The id of the message, the same for each retry.", "01a1de61-081d-7ef1-9afc-d9ab2f5509bd"),
    Header("webhook-timestamp", "When it was sent, in seconds since 1970.", "1794732263"),
    Header("webhook-signature", "`v1,` and the HMAC-SHA256 of id, time and body, by each secret.", "v1,..."),
)

_PARAMETER = re.compile(r"\{(\w+)\}")


def document(routes: Iterable[Route], about_scopes: Mapping[str, str] | None = None) -> Json:
    """`about_scopes`: what the scopes of extensions allow."""
    shown = [route for route in routes if not route.hidden]
    components = _components(shown)
    samples = OpenApiExamples(components)
    paths: Json = {}
    for route in shown:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, samples)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version("holdfast"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag, "description": about} for tag, about in _tags(shown, about_scopes or {}).items()],
        "paths": paths,
        "webhooks": {event: {"post": _webhook(event, samples)} for event in EVENTS},
        "components": {
            "schemas": components,
            "responses": {_phrase(status): _refusal(status) for status in _refused(shown)},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key: `holdfast_client_...` and the like.",
                },
                "adminSecret": {"type": "apiKey", "in": "header", "name": "X-Admin-Secret"},
            },
        },
    }


def _tags(routes: list[Route], about_scopes: Mapping[str, str]) -> dict[str, str]:
    """Each extension has its own tag."""
    tags = dict(TAGS)
    for name in sorted({route.extension for route in routes if route.extension}):
        scopes = [f"`{scope}`: {about}" for scope, about in about_scopes.items() if extension_of(scope) == name]
        tags[name] = "\n- ".join([f"The extension {name}.{' Scopes:' if scopes else ''}", *scopes])
    return tags


def _components(routes: list[Route]) -> Json:
    """Extensions describe their fields with `msgspec.Meta(description=...)`; `descriptions` is for the core."""
    found = _schemas(routes)
    for name in _schemas(route for route in routes if not route.extension):
        schema = found[name]
        if "additionalProperties" in schema:  # a request body
            for field, inner in schema.get("properties", {}).items():
                if about := described(field, name):
                    schema["properties"][field] = {**inner, "description": about}
    return dict(sorted(found.items()))


def _schemas(routes: Iterable[Route]) -> Json:
    types = [wire.Problem, wire.WebhookMessage, *(kind for route in routes for kind in _types(route))]
    return msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=REF)[1]


def _types(route: Route) -> list[Any]:
    return [kind for kind in (route.body, *route.answers.values()) if isinstance(kind, type)]


def check_types(routes: Iterable[Route]) -> None:
    """Schema names are class names without a module: two classes of one name are an error that names both."""
    named: dict[str, tuple[Any, str]] = {
        kind.__name__: (kind, "the core") for kind in (wire.Problem, wire.WebhookMessage)
    }
    for route in routes:
        where = f"{route.name} of {f'the extension {route.extension}' if route.extension else 'the core'}"
        for kind in _types(route):
            other, its_place = named.setdefault(kind.__name__, (kind, where))
            if other is not kind:
                raise Invalid(
                    f"{where} and {its_place} have two types called {kind.__name__}, of {kind.__module__} and "
                    f"{other.__module__}: rename one of them",
                    code="duplicate_type",
                )
            if route.extension:
                _check_type(kind, where)
        for kind in (route.query, route.form) if route.extension else ():
            if kind is not None:
                _check_type(kind, where)
    _, found = msgspec.json.schema_components([kind for kind, _ in named.values()], ref_template=REF)
    for kind, where in named.values():
        if kind.__name__ not in found:
            raise Invalid(
                f"{where}: inside the body or answer of another route there is another type called {kind.__name__}: "
                "rename one of them",
                code="duplicate_type",
            )


def _check_type(kind: Any, where: str) -> None:
    try:
        _, found = msgspec.json.schema_components([kind], ref_template=REF)
    except TypeError as error:
        raise Invalid(
            f"{where}: no JSON schema can be made of {kind.__name__}: {error}", code="invalid_route"
        ) from None
    if kind.__name__ not in found:
        raise Invalid(
            f"{where}: a body or an answer is a msgspec.Struct or another class with fields, not {kind.__name__}",
            code="invalid_route",
        )


def statuses(route: Route) -> set[int]:
    """Every error status of this route."""
    refused = set(route.refuses)
    if route.scope is not None:
        refused |= {*GUARDED, *STORED}
    if route.extension:  # the time limit, at least
        refused |= {*STORED}
    if route.body is not None:
        refused |= set(WITH_BODY)
    if route.query is not None:
        refused |= set(WITH_QUERY)
    if route.extension and "{" in route.path:  # the database or the storage may reject the value of a path parameter
        refused.add(422)
    return refused - route.answers.keys()


def _refused(routes: list[Route]) -> list[int]:
    return sorted({status for route in routes for status in statuses(route)})


# -- one route --------------------------------------------------------------------------------------------------


def _operation(route: Route, samples: OpenApiExamples) -> Json:
    answers = dict(route.answers)
    if route.ranges:
        answers |= {206: route.answers.get(200), 304: None, 416: None}
    operation: Json = {
        "operationId": "_".join(re.findall(r"\w+", f"{route.method.lower()} {route.path}")),
        "tags": [route.tag],
        "summary": route.about,
        "security": _security(route),
        "responses": {str(status): _answer(kind, status, samples) for status, kind in answers.items()},
    }
    for status in LOCATED if route.location else ():
        if str(status) in operation["responses"]:
            operation["responses"][str(status)]["headers"] = LOCATION
    headers = map(_header_parameter, route.described_headers)
    if parameters := [*_path_parameters(route), *_query_parameters(route), *headers]:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = _request_body(route, samples)
    for status in sorted(statuses(route)):
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{_phrase(status)}"}
    return operation


def _request_body(route: Route, samples: OpenApiExamples) -> Json:
    if not isinstance(route.body, str):
        schema = _ref(route.body)
        content: Json = {"application/json": {"schema": schema, "example": samples.of(schema)}}
        return {"required": not all_optional(route.body), "content": content}
    content = {route.body: {"schema": {}}}
    if route.form is not None:
        content[MULTIPART if route.body == "*/*" else route.body] = {"schema": _form(route.form)}
    return {"required": True, "content": content}


def _form(kind: Any) -> Json:
    """A field of bytes is a file, which is sent as it is."""
    schema = _struct_schema(kind)
    fields = {name: _form_field(inner) for name, inner in schema["properties"].items()}
    return {"type": "object", "properties": fields, "required": schema["required"]}


def _form_field(schema: Json) -> Json:
    field, about = without_null(schema), _own(schema)
    if field.pop("contentEncoding", None):
        field["format"] = "binary"
    if "items" in field:  # a field that occurs several times
        field["items"] = _form_field(field["items"])
    return {**field, "description": about} if about else field


def _struct_schema(kind: Any) -> Json:
    """Without references: the types of its fields, such as enums, are no components of the document."""
    _, found = msgspec.json.schema_components([kind], ref_template="{name}")
    schema: Json = _inlined(found[kind.__name__], found)
    return schema


def _inlined(value: Any, found: Json) -> Any:
    if isinstance(value, list):
        return [_inlined(each, found) for each in value]
    if not isinstance(value, dict):
        return value
    if isinstance(reference := value.get("$ref"), str):
        value = {**found[reference], **{name: inner for name, inner in value.items() if name != "$ref"}}
    return {name: _inlined(inner, found) for name, inner in value.items()}


def _security(route: Route) -> list[Json]:
    if route.scope is None:
        return []
    ways: list[Json] = [{"key": [str(route.scope)]}]
    if ADMIN.may(route.scope):
        ways.append({"adminSecret": []})
    return [*ways, {}] if route.local else ways  # the empty one: no credentials needed


def _answer(kind: Any, status: int, samples: OpenApiExamples) -> Json:
    answer: Json = {"description": HTTPStatus(status).phrase}
    if isinstance(kind, str):
        example = {"example": STREAM_EXAMPLE} if kind == EVENT_STREAM else {}
        answer["content"] = {kind: {"schema": {} if kind == "application/json" else {"type": "string"}, **example}}
    elif kind is not None:
        schema = _ref(kind)
        answer["content"] = {"application/json": {"schema": schema, "example": samples.of(schema)}}
    return answer


def _refusal(status: int) -> Json:
    content = {PROBLEM.decode(): {"schema": _ref(wire.Problem)}}
    refusal: Json = {"description": HTTPStatus(status).phrase, "content": content}
    if status in (429, 503):
        refusal["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait."}}
    return refusal


def _path_parameters(route: Route) -> list[Json]:
    return [
        _parameter("path", name, "" if route.extension else described(name, "path"), PATH_EXAMPLES.get(name, name))
        for name in map(wire.camel, _PARAMETER.findall(route.path))
    ]


def _query_parameters(route: Route) -> list[Json]:
    if route.query is None:
        return []
    kind, schema = route.query.__name__, _struct_schema(route.query)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", []),
            "description": _own(inner) if route.extension else described(name, kind) or "",
            "schema": without_null(inner),
        }
        for name, inner in schema["properties"].items()
    ]


def _own(schema: Json) -> str:
    """The description of the field itself; of a nullable field, one level deeper."""
    said = (each.get("description") for each in (schema, *schema.get("anyOf", ())))
    return next((about for about in said if about), "")


def _header_parameter(header: Header) -> Json:
    return _parameter("header", header.name, header.about, header.example)


def _parameter(place: str, name: str, about: str | None, example: str) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": about or "",
        "schema": {"type": "string"},
        "example": example,
    }


def without_null(schema: Json) -> Json:
    """A query string has no null: an absent parameter is left out."""
    if "anyOf" in schema:
        others = [each for each in schema["anyOf"] if each != {"type": "null"}]
        schema = others[0] if len(others) == 1 else {**schema, "anyOf": others}
    return {name: value for name, value in schema.items() if name != "default" or value is not None}


# -- one message ------------------------------------------------------------------------------------------------


def _webhook(event: str, samples: OpenApiExamples) -> Json:
    schema = _ref(wire.WebhookMessage)
    message = samples.of(schema) | {"type": event}
    return {
        "operationId": event,
        "summary": f"Sent to webhooks that subscribe to `{event}`; any 2xx response acknowledges it.",
        "parameters": [_header_parameter(header) for header in SIGNED],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": message}}},
        "responses": {"2XX": {"description": "Acknowledged."}},
    }


# -- names ------------------------------------------------------------------------------------------------------


def _ref(kind: Any) -> Json:
    return {"$ref": REF.format(name=kind.__name__)}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")
