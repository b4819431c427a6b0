"""The compose file: what it refers to exists, and its commands work together, as processes of this machine."""

import re
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.cli.background import until
from tests.conftest import administer, with_database
from tests.deploy.commands import parsed, unknown
from tests.deploy.compose import COMPOSE, OURS, SERVICES, STATE, Machine, seconds
from tests.deploy.image import DOCKERFILE, arguments_of, environment
from tests.deploy.installation import SERVER, WORKER, address
from tests.deploy.manifests import DEPLOY

SCRAPING = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text(encoding="utf-8"))
JOBS = {job["job_name"]: job for job in SCRAPING["scrape_configs"]}


def mounts(name: str) -> dict[str, str]:
    """What is mounted, by the place where it is."""
    words = [line.split(":") for line in SERVICES[name].get("volumes", ())]
    return {where: what for what, where, *_ in words}


# -- what it refers to ------------------------------------------------------------------------------------------


def test_the_image_is_built_from_the_dockerfile() -> None:
    assert {(DEPLOY / SERVICES[name]["build"]["context"]).resolve() / "Dockerfile" for name in OURS} == {DOCKERFILE}


@pytest.mark.parametrize("name", SERVICES)
def test_services_volumes_and_files_that_it_names_exist(name: str) -> None:
    assert set(SERVICES[name].get("depends_on", ())) <= SERVICES.keys()
    for what in mounts(name).values():
        assert (DEPLOY / what).exists() if what.startswith("./") else what in COMPOSE["volumes"], what


@pytest.mark.parametrize("name", OURS)
def test_commands_and_settings_exist(name: str) -> None:
    assert unknown(SERVICES[name]["environment"]) == set()
    command = SERVICES[name]["command"]
    typed = [command] if command[0] == "holdfast" else map(str.split, re.findall(r"holdfast keys .+", command[-1]))
    assert [parsed(words).run for words in typed]


def test_published_ports_are_bound_to_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_stop_timeout_of_a_worker_exceeds_its_grace_period() -> None:
    worker = SERVICES["worker"]
    grace = float(worker["environment"]["HOLDFAST_STOP_GRACE_SECONDS"])
    assert seconds(worker["stop_grace_period"]) >= grace + 30
    assert worker["deploy"]["replicas"] == 2


# -- Prometheus and Grafana -------------------------------------------------------------------------------------


def test_prometheus_finds_its_rules_its_key_and_its_targets() -> None:
    inside = mounts("prometheus")
    assert inside["/etc/prometheus/prometheus.yml"] == "./prometheus/scrape.yml"
    assert {f"/etc/prometheus/{name}" for name in SCRAPING["rule_files"]} <= inside.keys()
    key = Path(JOBS[SERVER]["authorization"]["credentials_file"])
    assert inside[str(key.parent)] == mounts("keys")[STATE]
    assert f"--key-file {key.name}" in SERVICES["keys"]["command"][-1]
    [servers], [workers] = JOBS[SERVER]["static_configs"], JOBS[WORKER]["dns_sd_configs"]
    assert servers["targets"] == [f"server:{parsed(SERVICES['server']['command']).port}"]
    assert (workers["names"], workers["port"]) == (["worker"], parsed(SERVICES["worker"]["command"]).metrics_port)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on the PATH")
def test_promtool_accepts_the_configuration_and_the_rules(tmp_path: Path) -> None:
    for name in ("scrape.yml", "alerts.yml"):
        text = (DEPLOY / "prometheus" / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(STATE, str(tmp_path)), encoding="utf-8")
    (tmp_path / "prometheus.key").touch()
    subprocess.run(["promtool", "check", "config", tmp_path / "scrape.yml"], check=True, capture_output=True)


def test_grafana_finds_its_data_source_and_its_dashboard() -> None:
    inside = mounts("grafana")
    provisioning = DEPLOY / inside["/etc/grafana/provisioning"]

    def only(folder: str, kind: str) -> Any:
        [file] = (provisioning / folder).iterdir()
        [found] = yaml.safe_load(file.read_text(encoding="utf-8"))[kind]
        return found

    source, provider = only("datasources", "datasources"), only("dashboards", "providers")
    assert source["url"] in {f"http://{name}:9090" for name in SERVICES}
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert inside[f"{provider['options']['path']}/holdfast.json"] == "./grafana/holdfast.json"


# -- at work ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def empty_postgres_url(postgres_server_url: str) -> AsyncIterator[str]:
    name = f"hf_compose_{secrets.token_hex(8)}"
    await administer(postgres_server_url, f"CREATE DATABASE {name}")
    yield with_database(postgres_server_url, name)
    await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.postgres
@pytest.mark.slow
def test_the_services_run_a_job_together(tmp_path: Path, empty_postgres_url: str) -> None:
    machine = Machine(tmp_path, empty_postgres_url)
    for name in ("migrate", "keys", "keys"):  # the second time they exist
        machine.run(name)
    with ExitStack() as stack:
        server = stack.enter_context(machine.start("server"))
        workers = [
            stack.enter_context(machine.start("worker")) for _ in range(SERVICES["worker"]["deploy"]["replicas"])
        ]
        url = address(server, r"ready: (http://[^\s,\"]+)")
        ports = [address(worker, r"metrics: (http://[^\s\"]+)/metrics") for worker in workers]
        until(lambda: machine.is_healthy("server", url))
        until(lambda: all(machine.is_healthy("worker", port) for port in ports))

        assert status(url, key_in(machine, "client.key")) == "COMPLETED"
        reading = key_in(machine, Path(JOBS[SERVER]["authorization"]["credentials_file"]).name)
        assert "holdfast_workers{" in scraped(url, reading)
        assert all("job_active_count" in scraped(port, {}) for port in ports)
        assert httpx2.get(f"{url}/metrics").status_code == 401

        assert [each.end() for each in (*workers, server)] == [0, 0, 0]
    assert not machine.is_healthy("server", url)


def key_in(machine: Machine, name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {(machine.state / name).read_text(encoding='utf-8').strip()}"}


def status(url: str, key: dict[str, str]) -> str:
    """Of the job that the comment of the file hands in, when it has ended."""
    intent = {"jobType": "hello", "payload": {}}
    job = httpx2.post(f"{url}/jobs", json=intent, headers=key | {"Prefer": "wait=30"}, timeout=60)
    return str(job.raise_for_status().json()["status"])


def scraped(url: str, key: dict[str, str]) -> str:
    return httpx2.get(f"{url}/metrics", headers=key).raise_for_status().text


def test_the_image_has_the_ports_and_the_volume_of_the_compose_file() -> None:
    ports = [str(parsed(SERVICES["server"]["command"]).port), str(parsed(SERVICES["worker"]["command"]).metrics_port)]
    assert arguments_of("EXPOSE")[0].split() == ports
    assert environment()["HOLDFAST_DATA_DIR"] == STATE
    assert any(STATE in step for step in arguments_of("RUN"))
