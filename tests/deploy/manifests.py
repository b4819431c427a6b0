"""The Kubernetes and KEDA manifests in deploy/, and validators for both schemas."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = "1.33"


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / path).read_text(encoding="utf-8")))


def of_kind(path: str, kind: str) -> dict[str, Any]:
    [found] = [document for document in documents(path) if document["kind"] == kind]
    return found


def keda_schema(kind: str) -> dict[str, Any]:
    """The schema of KEDA's own definition of the kind; unknown fields are errors."""
    models = pytest.importorskip(
        "cloudcoil.models.keda.v1alpha1",
        reason="cloudcoil-models-keda is not installed: it has the KEDA schemas, see the group `dev`",
    )
    return _closed(getattr(models, kind).model_json_schema(by_alias=True))


def kubernetes_errors(document: dict[str, Any]) -> str | None:
    """The first violation of the Kubernetes schema."""
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    return None


def keda_errors(document: dict[str, Any]) -> list[str]:
    """All violations of the KEDA schema."""
    return [
        error.message for error in jsonschema.Draft202012Validator(keda_schema(document["kind"])).iter_errors(document)
    ]


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {name: _closed(value) for name, value in schema.items()}
    return {"additionalProperties": False, **inside} if "properties" in schema else inside
