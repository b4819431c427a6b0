"""The Kubernetes manifests are valid, refer to each other, and name commands, settings and probes that exist."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.server.http.server import STOP_SECONDS
from tests.deploy.commands import parsed, unknown
from tests.deploy.manifests import DEPLOY, documents, kubernetes_errors, of_kind

FILES = sorted(f"kubernetes/{path.name}" for path in (DEPLOY / "kubernetes").iterdir())
SERVER, WORKER, MIGRATE = "kubernetes/server.yaml", "kubernetes/worker.yaml", "kubernetes/migrate.yaml"
PODS = {SERVER: "Deployment", WORKER: "Deployment", MIGRATE: "Job"}


def pod(file: str) -> dict[str, Any]:
    spec: dict[str, Any] = of_kind(file, PODS[file])["spec"]["template"]["spec"]
    return spec


def container(file: str) -> dict[str, Any]:
    [found] = pod(file)["containers"]
    return dict(found)


def variables(file: str) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(file)["env"]}


@pytest.mark.parametrize("file", FILES)
def test_every_manifest_matches_the_kubernetes_schema(file: str) -> None:
    errors = {document["kind"]: kubernetes_errors(document) for document in documents(file)}
    assert errors, "a manifest contains at least one object"
    assert set(errors.values()) == {None}, errors


@pytest.mark.parametrize("file", PODS)
def test_commands_and_settings_exist(file: str) -> None:
    assert parsed(container(file)["args"]).run
    assert unknown(variables(file)) == set()


@pytest.mark.parametrize("file", PODS)
def test_every_secret_file_is_mounted_from_the_secret(file: str) -> None:
    secret = of_kind("kubernetes/secret.example.yaml", "Secret")
    mounts = {mount["name"]: mount["mountPath"] for mount in container(file)["volumeMounts"]}
    [(volume, source)] = [(each["name"], each["secret"]) for each in pod(file)["volumes"] if "secret" in each]
    assert source["secretName"] == secret["metadata"]["name"]
    keys = {item["key"]: item["path"] for item in source.get("items", ())} or {key: key for key in secret["stringData"]}
    assert keys.keys() <= secret["stringData"].keys()
    files = {value for name, value in variables(file).items() if name.endswith("_FILE")}
    assert files == {f"{mounts[volume]}/{path}" for path in keys.values()}


@pytest.mark.parametrize("file", [SERVER, WORKER])
def test_probes_use_the_port_that_the_process_listens_on(file: str) -> None:
    command, [port] = parsed(container(file)["args"]), container(file)["ports"]
    assert port["containerPort"] == (command.port if file == SERVER else command.metrics_port)
    probes = {name: probe["httpGet"] for name, probe in container(file).items() if name.endswith("Probe")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert (probes["livenessProbe"]["path"], probes["readinessProbe"]["path"]) == ("/livez", "/readyz")


def test_the_termination_grace_period_covers_the_stop_of_the_process() -> None:
    assert pod(WORKER)["terminationGracePeriodSeconds"] >= float(variables(WORKER)["HOLDFAST_STOP_GRACE_SECONDS"]) + 10
    pause = container(SERVER)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(SERVER)["terminationGracePeriodSeconds"] >= STOP_SECONDS + pause + 10


@pytest.mark.parametrize("file", PODS)
def test_pods_have_no_privileges(file: str) -> None:
    assert pod(file)["securityContext"]["runAsNonRoot"]
    assert not pod(file)["automountServiceAccountToken"]
    allowed = container(file)["securityContext"]
    assert allowed["readOnlyRootFilesystem"]
    assert not allowed["allowPrivilegeEscalation"]
    assert allowed["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("file", [SERVER, WORKER])
def test_budgets_and_the_service_select_the_pods(file: str) -> None:
    labels = of_kind(file, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [document["spec"]["selector"] for document in documents(file)]
    for selector in selectors:
        wanted = selector.get("matchLabels", selector)
        assert wanted
        assert wanted.items() <= labels.items()


def test_the_keda_triggers_use_the_url_of_the_service() -> None:
    service = of_kind(SERVER, "Service")
    for trigger in of_kind("keda/scaledobject.yaml", "ScaledObject")["spec"]["triggers"]:
        url = urlsplit(trigger["metadata"]["url"])
        assert (url.hostname or "").partition(".")[0] == service["metadata"]["name"]
        assert [url.port] == [port["port"] for port in service["spec"]["ports"]]


def test_no_manifest_contains_a_real_secret() -> None:
    values = of_kind("kubernetes/secret.example.yaml", "Secret")["stringData"]
    assert values == {
        "database-url": "postgresql://USER:PASSWORD@HOST:5432/DATABASE",
        "admin-secret": "AT-LEAST-16-CHARACTERS",
    }
    assert [Path(file).name for file in FILES if "secret" in file] == ["secret.example.yaml"]
