"""The OpenAPI document as a page for people: HTML and a style sheet, no script, nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from html import escape
from http import HTTPStatus
from typing import Any

Json = dict[str, Any]

SERVER = "http://127.0.0.1:8080"
STYLE = """
:root { color-scheme: light dark; --soft: light-dark(#f4f4f1, #22242a); --line: light-dark(#dcdcd6, #3a3d45); }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h2 { border-bottom: 2px solid var(--line); margin-top: 3rem; }
h3 { font-family: ui-monospace, monospace; font-size: 1rem; margin-top: 2.5rem; }
h3 b { display: inline-block; min-width: 4rem; }
h4 { margin: 1rem 0 0.25rem; }
code, pre { background: var(--soft); border-radius: 4px; font: 0.875rem/1.45 ui-monospace, monospace; }
code { padding: 0 0.2em; }
pre { overflow-x: auto; padding: 0.6rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-top: 1px solid var(--line); padding: 0.25rem 0.75rem 0.25rem 0; text-align: left; vertical-align: top; }
dt { font-family: ui-monospace, monospace; font-weight: 600; margin-top: 0.75rem; }
dd { margin-left: 1.5rem; }
:target { background: light-dark(#fff3c4, #4a3f12); }
nav { columns: 16rem; }
"""


class Html(str):
    """Text that is HTML already; any other is escaped where it is put in."""

    __slots__ = ()


def page(document: Json, codes: Mapping[str, tuple[str, str]]) -> str:
    info, schemas = document["info"], document["components"]["schemas"]
    operations = list(_operations(document))
    parts = [
        _tag("h1", f"{info['title']} {info['version']}"),
        *(_tag("p", _prose(text)) for text in info["description"].split("\n\n")),
        _tag("p", "The same for programs: ", _link("/openapi.json", "/openapi.json"), "."),
        _tag("nav", *(_nav(method, path, each) for method, path, each in operations)),
    ]
    for tag in document["tags"]:
        parts += [_tag("h2", tag["name"], id=f"section-{tag['name']}"), _tag("p", _prose(tag["description"]))]
        parts += [_operation(*each, document) for each in operations if tag["name"] in each[2]["tags"]]
    if document.get("webhooks"):
        parts += [_tag("h2", "webhooks", id="section-webhooks"), *_webhooks(document["webhooks"])]
    parts += [_tag("h2", "types", id="types"), *(_type(name, schema) for name, schema in schemas.items())]
    parts += [_tag("h2", "errors", id="errors"), _tag("dl", *(_code(code, *said) for code, said in codes.items()))]
    head = _tag("head", Html('<meta charset="utf-8">'), _tag("title", info["title"]), _tag("style", Html(STYLE)))
    return f'<!doctype html>\n<html lang="en">{head}{_tag("body", *parts)}</html>\n'


def _operations(document: Json) -> Iterable[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


# -- one route ----------------------------------------------------------------------------------------------------


def _nav(method: str, path: str, operation: Json) -> Html:
    return _tag("div", _link(f"#{operation['operationId']}", f"{method} {path}"))


def _operation(method: str, path: str, operation: Json, document: Json) -> Html:
    parts = [
        _tag("h3", _tag("b", method), " ", path, id=operation["operationId"]),
        _tag("p", operation["summary"], " ", _who(operation["security"])),
    ]
    if parameters := operation.get("parameters"):
        parts += [_tag("h4", "Parameters"), _table(_parameter(each) for each in parameters)]
    if body := operation.get("requestBody"):
        [content] = body["content"].values()
        parts += [_tag("h4", "Body"), _tag("p", _kind(content["schema"]))]
    parts += [_tag("h4", "Answers"), _table(_answer(*each) for each in operation["responses"].items())]
    parts += [_tag("pre", _curl(method, path, operation)), *_example(operation["responses"])]
    return _tag("section", *parts)


def _who(security: list[Json]) -> Html:
    if not security:
        return _inline("Open to anybody.")
    [scope] = security[0]["key"]
    return Html(_inline("Needs a key with the scope ") + _tag("code", scope) + ".")


def _parameter(parameter: Json) -> Html:
    place = f"{parameter['in']}{', required' if parameter['required'] else ''}"
    kind, about = _kind(parameter["schema"]), _prose(parameter.get("description", ""))
    return _row(_tag("code", parameter["name"]), place, kind, about)


def _answer(status: str, answer: Json) -> Html:
    phrase = HTTPStatus(int(status)).phrase
    if "$ref" in answer:
        return _row(status, phrase, _link("#type-Problem", "Problem"))
    kinds = [(media, content["schema"]) for media, content in answer.get("content", {}).items()]
    return _row(status, phrase, *(_kind(schema) if "$ref" in schema else media for media, schema in kinds))


def _example(responses: Json) -> Iterable[Html]:
    for answer in responses.values():
        for content in answer.get("content", {}).values():
            if "example" in content:
                shown = content["example"]
                return [_tag("pre", shown if isinstance(shown, str) else json.dumps(shown, indent=2))]
    return []


def _curl(method: str, path: str, operation: Json) -> str:
    words = ["curl"] if method == "GET" else ["curl", "-X", method]
    words.append(f"{SERVER}{path}")
    if operation["security"]:
        words += ["-H", "authorization: Bearer KEY"]
    if body := operation.get("requestBody"):
        [content] = body["content"].values()
        words += ["-H", "content-type: application/json", "-d", json.dumps(content["example"])]
    return shlex.join(words).replace(" -H ", " \\\n  -H ").replace(" -d ", " \\\n  -d ")


def _webhooks(webhooks: Json) -> Iterable[Html]:
    for name, methods in webhooks.items():
        operation = methods["post"]
        [content] = operation["requestBody"]["content"].values()
        yield _tag("h3", name, id=f"webhook-{name}")
        yield _tag("p", _prose(operation["summary"]), " ", _kind(content["schema"]))
        yield _table(_parameter(each) for each in operation["parameters"])
        yield _tag("pre", json.dumps(content["example"], indent=2))


# -- types and codes ----------------------------------------------------------------------------------------------


def _type(name: str, schema: Json) -> Html:
    required = schema.get("required", [])
    rows = [
        _row(_tag("code", field), _kind(inner), "required" if field in required else "")
        for field, inner in schema.get("properties", {}).items()
    ]
    about = _tag("p", _prose(schema.get("description", "")))
    return _tag("section", _tag("h3", name, id=f"type-{name}"), about, _table(rows))


def _kind(schema: Json) -> Html:
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return _link(f"#type-{name}", name)
        case {"anyOf": list(kinds)}:
            return Html(" or ".join(_kind(kind) for kind in kinds))
        case {"enum": list(values)}:
            return Html(" ".join(_tag("code", str(value)) for value in values))
        case {"type": "array", "items": dict(items)}:
            return Html("list of " + _kind(items))
        case {"type": "object", "additionalProperties": dict(inner)}:
            return Html("object of " + _kind(inner))
    limits = [f"{word} {schema[name]}" for name, word in _LIMITS.items() if name in schema]
    return _inline(", ".join([schema.get("format") or schema.get("type", "any JSON"), *limits]))


_LIMITS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "to",
    "minLength": "at least characters:",
    "maxLength": "at most characters:",
    "maxItems": "at most items:",
}


def _code(code: str, meaning: str, remedy: str) -> Html:
    return Html(
        _tag("dt", code, id=code) + _tag("dd", _prose(meaning), ". ", _prose(remedy[:1].upper() + remedy[1:]), ".")
    )


# -- markup -------------------------------------------------------------------------------------------------------


def _tag(name: str, *inside: str, **attributes: str) -> Html:
    said = "".join(f' {attribute}="{escape(value)}"' for attribute, value in attributes.items())
    return Html(f"<{name}{said}>{''.join(map(_inline, inside))}</{name}>")


def _inline(text: str) -> Html:
    return text if isinstance(text, Html) else Html(escape(text))


def _link(to: str, text: str) -> Html:
    return _tag("a", text, href=to)


def _row(*cells: str) -> Html:
    return _tag("tr", *(_tag("td", cell) for cell in cells))


def _table(rows: Iterable[Html]) -> Html:
    return _tag("table", *rows)


def _prose(text: str) -> Html:
    """Words in backticks are code; links of the source page lead nowhere here and become their text."""
    plain = escape(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text))
    return Html(re.sub(r"`([^`]+)`", r"<code>\1</code>", plain))
