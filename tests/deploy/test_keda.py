"""The manifests for Kubernetes are what Kubernetes and KEDA take, and say about Holdfast what is true."""

from copy import deepcopy
from typing import Any

import pytest

from holdfast.cli.commands import make_parser
from holdfast.settings import NAMES
from tests.deploy.installation import worker_container
from tests.deploy.manifests import documents, keda_errors, kubernetes_errors, of_kind
from tests.deploy.scaler import asked_by_keda, reading_key, workers_for
from tests.server.admin_client import started
from tests.server.steps import Served, serving

WORKER, SCALED = "keda/worker.yaml", "keda/scaledobject.yaml"
TRIGGERS = of_kind(SCALED, "ScaledObject")["spec"]["triggers"]


# -- what they look like ----------------------------------------------------------------------------------------


def test_the_deployment_matches_the_kubernetes_schema() -> None:
    assert [kubernetes_errors(document) for document in documents(WORKER)] == [None]


def test_an_invalid_deployment_is_reported() -> None:
    wrong = of_kind(WORKER, "Deployment")
    wrong["spec"]["replica"] = 3
    assert "replica" in str(kubernetes_errors(wrong))


@pytest.mark.parametrize("document", documents(SCALED), ids=lambda document: document["kind"])
def test_the_keda_objects_match_the_keda_schema(document: dict[str, Any]) -> None:
    assert keda_errors(document) == []


@pytest.mark.parametrize("change", [{"minReplicas": 1}, {"maxReplicaCount": "20"}, {"triggers": None}])
def test_an_invalid_keda_object_is_reported(change: dict[str, Any]) -> None:
    wrong = deepcopy(of_kind(SCALED, "ScaledObject"))
    wrong["spec"] |= change
    assert keda_errors(wrong)


def test_the_manifests_refer_to_each_other() -> None:
    target, scaled = of_kind(WORKER, "Deployment"), of_kind(SCALED, "ScaledObject")
    assert scaled["spec"]["scaleTargetRef"] == {"kind": target["kind"], "name": target["metadata"]["name"]}
    assert "replicas" not in target["spec"], "an apply would undo what KEDA did"
    key = of_kind(SCALED, "TriggerAuthentication")
    assert {trigger["authenticationRef"]["name"] for trigger in TRIGGERS} == {key["metadata"]["name"]}


# -- what they say about a worker -------------------------------------------------------------------------------


def test_the_command_and_its_settings_exist() -> None:
    program, *arguments = worker_container()["args"]
    options = make_parser().parse_args(arguments)
    assert (program, options.queues, options.metrics_port) == (
        "holdfast",
        ["mail"],
        worker_container()["ports"][0]["containerPort"],
    )
    known = {f"HOLDFAST_{name.upper()}" for name in NAMES}
    assert {variable["name"].removesuffix("_FILE") for variable in worker_container()["env"]} <= known


def test_the_termination_grace_period_exceeds_that_of_the_worker() -> None:
    pod, said = of_kind(WORKER, "Deployment")["spec"]["template"]["spec"], worker_container()["env"]
    [grace] = [float(variable["value"]) for variable in said if variable["name"] == "HOLDFAST_STOP_GRACE_SECONDS"]
    assert pod["terminationGracePeriodSeconds"] >= grace + 10


# -- what KEDA reads --------------------------------------------------------------------------------------------


async def test_keda_reads_zero_for_a_queue_without_jobs(served: Served) -> None:
    key = await reading_key(served)
    assert [workers_for(await asked_by_keda(served, trigger, key), trigger) for trigger in TRIGGERS] == [0, 0]


async def test_keda_counts_running_jobs(store_url: str) -> None:
    async with serving(store_url) as served:
        [busy] = [trigger for trigger in TRIGGERS if trigger["name"] == "busy"]
        for _ in range(8):
            await started(served.engine, queue="mail")
        assert workers_for(await asked_by_keda(served, busy, await reading_key(served)), busy) == 2


async def test_keda_can_address_a_queue_with_a_dot_in_its_name(served: Served) -> None:
    await started(served.engine, queue="mail.eu")
    for query, location in {
        "queue=mail.eu": "total.busySlots",
        "queue=mail.eu,mail": r"queues.mail\.eu.busySlots",
        "": r"queues.mail\.eu.slotsWanted",
    }.items():
        metadata = {"url": f"http://x/api/admin/scale?{query}", "valueLocation": location, "authMode": "bearer"}
        assert await asked_by_keda(served, {"metadata": metadata}, await reading_key(served)) == 1
