"""What an OpenAPI document must be, whatever its routes: valid OpenAPI 3.1, without dangling references, with examples
that fit their schemas."""

from collections.abc import Iterator
from typing import Any

import schemathesis
from jsonschema import Draft202012Validator, FormatChecker

Document = dict[str, Any]


def check(document: Document) -> None:
    schemathesis.openapi.from_dict(document).validate()  # by the schema of the OpenAPI initiative
    assert dangling(document) == []
    assert repeated_parameters(document) == []
    assert wrong_examples(document) == []


def inside(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inside(inner)


def dangling(document: Document) -> list[str]:
    """References without a target."""
    references = [each["$ref"] for each in inside(document) if isinstance(each.get("$ref"), str)]
    return [reference for reference in references if _target(document, reference) is None]


def _target(document: Document, reference: str) -> Any:
    found: Any = document
    for name in reference.removeprefix("#/").split("/"):
        found = (found or {}).get(name)
    return found


def repeated_parameters(document: Document) -> list[tuple[str, str]]:
    found = []
    for methods in document["paths"].values():
        for described in methods.values():
            names = [(each["in"], each["name"].lower()) for each in described.get("parameters", [])]
            found += [(described["operationId"], name) for name in set(names) if names.count(name) > 1]
    return found


def examples(document: Document) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(where, schema, example) of every example in the document."""
    operations = [*document["paths"].items(), *document["webhooks"].items()]
    for path, methods in operations:
        for method, described in methods.items():
            where = f"{method} {path}"
            holders = [*described.get("parameters", [])]
            for said in (described.get("requestBody", {}), *described["responses"].values()):
                holders += said.get("content", {}).values()
            yield from ((where, holder["schema"], holder["example"]) for holder in holders if "example" in holder)


def wrong_examples(document: Document) -> list[str]:
    """As a stranger's validator reads the document, not as our own types do."""
    wrong = []
    for where, schema, example in examples(document):
        validator = Draft202012Validator(
            {**schema, "components": document["components"]}, format_checker=FormatChecker()
        )
        wrong += [f"{where}: {error.json_path}: {error.message}" for error in validator.iter_errors(example)]
    return wrong
