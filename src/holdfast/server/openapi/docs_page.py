"""Renders the OpenAPI document as an HTML page without scripts or external resources."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from html import escape
from http import HTTPStatus
from typing import Any

from holdfast.server.openapi.document import without_null

Json = dict[str, Any]

SERVER = "http://127.0.0.1:8080"  # replaced by the host name of the request
STYLE = """
:root { color-scheme: light dark; --soft: light-dark(#f3f4f6, #1f2229); --line: light-dark(#d9dce1, #3a3f49);
  --dim: light-dark(#57606a, #9aa4b1); --link: light-dark(#0b57d0, #8ab4f8); --page: light-dark(#fff, #15171c);
  --get: light-dark(#0b6e4f, #4cc38a); --post: light-dark(#8a4b00, #f0b056); --delete: light-dark(#a8071a, #ff8b8b); }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { background: var(--page); font: 16px/1.55 system-ui, sans-serif; margin: 0; overflow-wrap: anywhere; }
main { margin: 0 auto; max-width: 54rem; padding: 1rem; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0.5rem 0 1rem; }
h2 { border-bottom: 2px solid var(--line); font-size: 1.4rem; margin: 3rem 0 1rem; padding-bottom: 0.3rem; }
h3 { font: 600 1rem/1.5 ui-monospace, monospace; margin: 0 0 0.5rem; }
h4 { color: var(--dim); font-size: 0.9rem; margin: 1.25rem 0 0.35rem; }
p { margin: 0.5rem 0; }
section { border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; padding: 1rem; }
code, pre { background: var(--soft); border-radius: 4px; font: 0.85rem/1.5 ui-monospace, monospace; }
code { padding: 0.1em 0.3em; }
pre { margin: 0.5rem 0; padding: 0.75rem; white-space: pre-wrap; }
dl { margin: 0; }
dt { border-top: 1px solid var(--line); padding-top: 0.4rem; }
dt:first-child { border-top: 0; padding-top: 0; }
dd { margin: 0 0 0.4rem; }
small { color: var(--dim); font-size: 0.85rem; }
b { font-weight: 700; }
.get { color: var(--get); } .post { color: var(--post); } .delete { color: var(--delete); }
.list { list-style: none; margin: 0; padding: 0; }
.list li { display: flex; gap: 0.4rem; padding: 0.1rem 0; }
.list b { flex: none; font: 700 0.75rem/2 ui-monospace, monospace; min-width: 3.2rem; }
.pills { display: flex; flex-wrap: wrap; gap: 0.5rem; list-style: none; margin: 1rem 0; padding: 0; }
.pills a { border: 1px solid var(--line); border-radius: 999px; display: inline-block; padding: 0.3rem 0.8rem; }
:target { background: light-dark(#fff8d6, #3a3413); }
#contents { display: none; }
@media (min-width: 72rem) {
  body { display: grid; grid-template-columns: 25rem minmax(0, 1fr); }
  main { margin: 0; padding: 1rem 2.5rem 6rem; }
  .pills { display: none; }
  #contents { border-right: 1px solid var(--line); display: block; font-size: 0.8rem; height: 100vh; overflow-y: auto;
    padding: 1rem; position: sticky; top: 0; }
  #contents p { font-weight: 600; margin: 1rem 0 0.25rem; }
}
@media (max-width: 40rem) {
  main { padding: 0.75rem; }
  section { border-left: 0; border-radius: 0; border-right: 0; margin: 1rem -0.75rem; padding: 0.75rem; }
}
"""


class Html(str):
    """Text that is already HTML; other text is escaped."""

    __slots__ = ()


def page(document: Json, codes: Mapping[str, tuple[str, str]]) -> str:
    info, schemas = document["info"], document["components"]["schemas"]
    sections = {tag["name"]: _section(tag, document) for tag in document["tags"]}
    further = {"Webhook messages": "webhook-messages", "Types": "types", "Errors": "errors"}
    anchors = {**{name: _anchor(name) for name in sections}, **further}
    contents = [_tag("p", _link(f"#{_anchor(name)}", name)) + _index(name, document) for name in sections]
    parts = [
        _tag("h1", f"{info['title']} {info['version']}"),
        *(_tag("p", _prose(text)) for text in info["description"].split("\n\n")),
        _tag("p", "OpenAPI document: ", _link("/openapi.json", "/openapi.json"), "."),
        _list("pills", (_link(f"#{anchor}", name) for name, anchor in anchors.items())),
        *sections.values(),
        _tag("h2", "Webhook messages", id="webhook-messages"),
        *_webhooks(document["webhooks"], schemas),
        _tag("h2", "Types", id="types"),
        *(_type(name, schema) for name, schema in schemas.items()),
        _tag("h2", "Errors", id="errors"),
        _tag("p", _prose("Error codes, their meaning and what to do.")),
        _tag("dl", *(_code(code, *said) for code, said in codes.items())),
    ]
    aside = [Html(each) for each in contents] + [_tag("p", _link(f"#{to}", name)) for name, to in further.items()]
    return _document(info["title"], _tag("nav", *aside, id="contents"), _tag("main", *parts))


def _document(title: str, *inside: Html) -> str:
    head = _tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        _tag("title", title),
        _tag("style", Html(STYLE)),
    )
    return f'<!doctype html>\n<html lang="en">{head}{_tag("body", *inside)}</html>\n'


def _section(tag: Json, document: Json) -> Html:
    parts = [
        _tag("h2", tag["name"], id=_anchor(tag["name"])),
        _tag("p", _prose(tag["description"])),
        _index(tag["name"], document),
        *(_operation(*each, document) for each in _operations(document) if tag["name"] in each[2]["tags"]),
    ]
    return Html("".join(parts))


def _index(tag: str, document: Json) -> Html:
    shown = [each for each in _operations(document) if tag in each[2]["tags"]]
    return _list("list", (_entry(method, path, operation) for method, path, operation in shown))


def _entry(method: str, path: str, operation: Json) -> Html:
    return Html(_method(method) + " " + _link(f"#{operation['operationId']}", path))


def _method(method: str) -> Html:
    return Html(f'<b class="{escape(method.lower())}">{escape(method)}</b>')


def _anchor(name: str) -> str:
    return f"section-{name.lower().replace(' ', '-')}"


def _operations(document: Json) -> Iterable[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


# -- one route ----------------------------------------------------------------------------------------------------


def _operation(method: str, path: str, operation: Json, document: Json) -> Html:
    parts = [
        _tag("h3", _method(method), " ", path, id=operation["operationId"]),
        _tag("p", _prose(operation["summary"]), " ", _tag("small", _who(operation["security"]))),
    ]
    if parameters := operation.get("parameters"):
        parts += [_tag("h4", "Parameters"), _tag("dl", *map(_parameter, parameters))]
    if body := operation.get("requestBody"):
        parts += _body(body, document)
    parts += [_tag("h4", "Answers"), *_answers(operation["responses"])]
    parts += [_tag("h4", "Example"), _tag("pre", _curl(method, path, operation)), *_example(operation["responses"])]
    return _tag("section", *parts)


def _body(body: Json, document: Json) -> list[Html]:
    parts = []
    for media, content in body["content"].items():
        schema = content["schema"]
        if "$ref" in schema:
            parts += [_tag("h4", "Body: ", _kind(schema)), _fields(_resolved(schema, document))]
        else:
            parts += [_tag("h4", "Body: ", _tag("code", media)), *([_fields(schema)] if schema else [])]
    return parts


def _who(security: list[Json]) -> Html:
    if not security:
        return _inline("Needs no key.")
    [scope] = security[0]["key"]
    return Html(_inline("Needs a key with the scope ") + _tag("code", scope) + ".")


def _parameter(parameter: Json) -> Html:
    place = f"{parameter['in']}{', required' if parameter['required'] else ''}, "
    said = Html(_inline(place) + _kind(parameter["schema"]) + _default(parameter["schema"]))
    return _term(parameter["name"], said, parameter.get("description", ""))


def _fields(schema: Json) -> Html:
    required = schema.get("required", [])
    return _tag(
        "dl",
        *(
            _term(
                name,
                Html(("required, " if name in required else "") + _kind(without_null(inner)) + _default(inner)),
                inner.get("description", ""),
            )
            for name, inner in schema.get("properties", {}).items()
        ),
    )


def _term(name: str, said: Html, about: str) -> Html:
    return Html(_tag("dt", _tag("code", name), " ", _tag("small", said)) + _tag("dd", _prose(about)))


def _default(schema: Json) -> str:
    default = schema.get("default")
    return "" if default in (None, [], {}) else _inline(f"; default {json.dumps(default)}")


def _resolved(schema: Json, document: Json) -> Json:
    found: Json = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _answers(responses: Json) -> Iterable[Html]:
    """The responses of a route, and its error statuses in one line."""
    refused = [status for status, answer in responses.items() if "$ref" in answer]
    returned = ((status, answer) for status, answer in responses.items() if "$ref" not in answer)
    yield _list("list", (_answer(status, answer) for status, answer in returned))
    if refused:
        yield _tag("p", _tag("small", f"Errors: {', '.join(refused)}, each a ", _link("#type-Problem", "Problem"), "."))


def _answer(status: str, answer: Json) -> Html:
    phrase = HTTPStatus(int(status)).phrase
    kinds = [(media, content["schema"]) for media, content in answer.get("content", {}).items()]
    shown = "".join(": " + (_kind(schema) if "$ref" in schema else _inline(media)) for media, schema in kinds)
    return Html(_tag("b", status) + _inline(f" {phrase}") + shown)


def _example(responses: Json) -> Iterable[Html]:
    for answer in responses.values():
        for content in answer.get("content", {}).values():
            if "example" in content:
                shown = content["example"]
                return [_tag("pre", shown if isinstance(shown, str) else json.dumps(shown, indent=2))]
    return []


def _curl(method: str, path: str, operation: Json) -> str:
    examples = {each["name"]: each["example"] for each in operation.get("parameters", []) if each["in"] == "path"}
    words = ["curl"] if method in ("GET", "POST") else ["curl", "-X", method]
    body = operation.get("requestBody")
    if method == "POST" and body is None:
        words += ["-X", method]
    words.append(SERVER + re.sub(r"\{(\w+)\}", lambda found: str(examples.get(found[1], found[0])), path))
    lines = [shlex.join(words)]
    if operation["security"]:
        [scope] = operation["security"][0]["key"]
        lines.append(f"-H 'Authorization: Bearer holdfast_{KINDS.get(scope.partition(':')[0], 'client')}_...'")
    if body is not None:
        lines += _sent(body)
    return " \\\n  ".join(lines)


def _sent(body: Json) -> list[str]:
    media, content = list(body["content"].items())[-1]  # a form, if it takes one
    if "example" in content:
        return ["-H 'Content-Type: application/json'", f"-d {shlex.quote(json.dumps(content['example']))}"]
    if media == "multipart/form-data":
        return _form(content["schema"])
    return [f"-H {shlex.quote(f'Content-Type: {media}')}", "--data-binary @FILE"]


def _form(schema: Json) -> list[str]:
    """Its required fields; if none is, the first one."""
    fields = schema.get("properties", {"name": {"format": "binary"}})
    sent = schema.get("required") or list(fields)[:1]
    return [f"-F '{name}={'@FILE' if _is_file(fields[name]) else '...'}'" for name in sent]


def _is_file(field: Json) -> bool:
    return bool(field.get("items", field).get("format") == "binary")


KINDS = {"jobs": "client", "work": "worker", "admin": "admin"}  # kinds of keys by the prefix of a scope


def _webhooks(webhooks: Json, schemas: Json) -> Iterable[Html]:
    """All webhooks have the same form."""
    yield _list("list", (_tag("code", name, id=f"webhook-{name}") for name in webhooks))
    [operation] = [methods["post"] for methods in webhooks.values()][:1]
    [content] = operation["requestBody"]["content"].values()
    yield _tag(
        "section",
        _tag("p", _prose("Each is sent to the webhooks that subscribed to it; any 2xx answer accepts the message.")),
        _tag("h4", "Headers"),
        _tag("dl", *map(_parameter, operation["parameters"])),
        _tag("h4", "Body: ", _kind(content["schema"])),
        _tag("pre", json.dumps(content["example"], indent=2)),
    )


# -- types and codes ----------------------------------------------------------------------------------------------


def _type(name: str, schema: Json) -> Html:
    about = _tag("p", _prose(schema.get("description", "")))
    return _tag("section", _tag("h3", name, id=f"type-{name}"), about, _fields(schema))


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
    limits = " ".join(f"{word} {schema[name]}" for name, word in _LIMITS.items() if name in schema)
    if "maxLength" in schema:
        limits = f"{schema.get('minLength', 0)} to {schema['maxLength']} characters"
    return _inline(", ".join(filter(None, [schema.get("format") or schema.get("type", "any JSON"), limits])))


_LIMITS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "to",
    "maxItems": "at most items:",
}


def _code(code: str, meaning: str, remedy: str) -> Html:
    about = _tag("dd", _prose(meaning), ". ", _prose(remedy[:1].upper() + remedy[1:]), ".")
    return Html(_tag("dt", _tag("code", code), id=code) + about)


# -- markup -------------------------------------------------------------------------------------------------------


def _tag(name: str, *inside: str, **attributes: str) -> Html:
    said = "".join(f' {attribute}="{escape(value)}"' for attribute, value in attributes.items())
    return Html(f"<{name}{said}>{''.join(map(_inline, inside))}</{name}>")


def _inline(text: str) -> Html:
    return text if isinstance(text, Html) else Html(escape(text))


def _link(to: str, text: str) -> Html:
    return _tag("a", text, href=to)


def _list(kind: str, items: Iterable[Html]) -> Html:
    return Html(f'<ul class="{kind}">{"".join(_tag("li", item) for item in items)}</ul>')


def _prose(text: str) -> Html:
    """Text in backticks becomes code; links become their text."""
    plain = escape(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text))
    return Html(re.sub(r"`([^`]+)`", r"<code>\1</code>", plain))
