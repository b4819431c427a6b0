"""A whole installation, as the examples of deploy/ have it: a server, a worker, jobs that ended, and their metrics."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from holdfast.observe.instruments import MetricsRegistry
from holdfast.observe.server_metrics import ServerMetrics
from holdfast.observe.worker_metrics import WorkerMetrics
from tests.cli.background import Background, until
from tests.deploy.manifests import of_kind
from tests.deploy.promql import Scrape
from tests.server.steps import ADMIN, SECRET, bearer

SERVER, WORKER = "holdfast-server", "holdfast-worker"
UNREACHABLE = "http://127.0.0.1:9/"


def worker_container() -> dict[str, Any]:
    [container] = of_kind("keda/worker.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    return container


def worker_arguments() -> list[str]:
    """What the manifest says, on a port that is free."""
    program, *arguments = worker_container()["args"]
    assert program == "holdfast"
    return [*arguments[: arguments.index("--metrics-port") + 1], "0"]


@contextmanager
def installation(folder: Path) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """Clients of the server and of the worker."""
    surroundings = {
        "HOLDFAST_DATABASE_URL": f"sqlite:///{folder}/jobs.db",
        "HOLDFAST_ADMIN_SECRET": SECRET,
        "HOLDFAST_UNSAFE_PRIVATE_WEBHOOKS": "true",
    }
    shutil.copy(Path(__file__).with_name("shop.py"), folder)
    with (
        Background("serve", "--port", "0", folder=folder, **surroundings) as serving,
        Background(*worker_arguments(), folder=folder, **surroundings) as working,
        httpx2.Client(base_url=address(serving, r"ready: (http://[^\s,\"]+)"), timeout=60) as server,
        httpx2.Client(base_url=address(working, r"metrics: (http://[^\s\"]+)/metrics"), timeout=60) as worker,
    ):
        yield server, worker


def address(process: Background, form: str) -> str:
    until(lambda: re.search(form, process.said) or process.process.poll() is not None)
    found = re.search(form, process.said)
    assert found is not None, process.said
    return found[1].replace("0.0.0.0", "127.0.0.1")


def do_some_work(server: httpx2.Client, worker: httpx2.Client) -> None:
    """Both queues have a job before the first count, whose figures last for a while."""
    _write_late(server)
    _hand_in(server, jobType="SEND_EMAIL", payload={"to": "b@example.com"}, delaySeconds=3600)
    _send_a_webhook(server)
    _wait_for_probes(worker)
    for job_type, payload in {"SEND_EMAIL": {"to": "a@example.com"}, "BOUNCE": {}, "FLAKY": {}}.items():
        job = _hand_in(server, jobType=job_type, payload=payload)
        until(lambda job=job: server.get(f"/jobs/{job}").json()["status"] in ("COMPLETED", "FAILED"))


def _hand_in(server: httpx2.Client, **job: Any) -> str:
    return str(server.post("/jobs", json={"queue": "mail", **job}).raise_for_status().json()["jobId"])


def _wait_for_probes(worker: httpx2.Client) -> None:
    for probe in ("livenessProbe", "readinessProbe"):
        path = worker_container()[probe]["httpGet"]["path"]
        until(lambda path=path: worker.get(path).status_code == 200)


def _send_a_webhook(server: httpx2.Client) -> None:
    made = server.post("/api/admin/webhooks", json={"url": UNREACHABLE}, headers=ADMIN).raise_for_status().json()
    server.post(f"/api/admin/webhooks/{made['webhook']['webhookId']}/test", headers=ADMIN).raise_for_status()


def _write_late(server: httpx2.Client) -> None:
    key = bearer(server.post("/api/worker/register", json={}, headers=ADMIN).raise_for_status().json()["apiKey"])
    job = _hand_in(server, jobType="OTHER", payload={}, queue="elsewhere")
    claimed = server.post("/api/worker/claim", json={"queues": ["elsewhere"]}, headers=key).json()["jobs"]
    assert [one["jobId"] for one in claimed] == [job]
    late = server.post("/api/worker/complete", json={"jobId": job, "leaseToken": "another's"}, headers=key)
    assert late.status_code == 409


def scraped(server: httpx2.Client, worker: httpx2.Client) -> Scrape:
    until(lambda: "holdfast_queue_jobs{" in server.get("/metrics").text)
    scrape = Scrape()
    for job, asked, registry in ((SERVER, server, ServerMetrics()), (WORKER, worker, WorkerMetrics())):
        scrape.add(asked.get("/metrics").raise_for_status().text, job, labels_in(registry))
    return scrape


def labels_in(registry: MetricsRegistry) -> dict[str, Any]:
    return {name: instrument.labels for name, instrument in registry.instruments.items()}
