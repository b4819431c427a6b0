"""`holdfast serve`, and the server inside `holdfast dev`, as processes of their own."""

import json
import re
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.cli.background import Background, until
from tests.cli.processes import holdfast

APP = """
from holdfast import App

app = App()

@app.job(queue="numbers", max_attempts=2)
async def twice(number: int) -> int:
    return 2 * number
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(APP, encoding="utf-8")
    return tmp_path


def address(process: Background, words: str = r"ready: ") -> str:
    process.until_it_says("http://")
    until(lambda: re.search(words + r"(http://[\d.]+:\d+)", process.said))
    found = re.search(words + r"(http://[\d.]+:\d+)", process.said)
    assert found is not None
    return found[1]


def ask(url: str, body: object = None) -> tuple[int, dict[str, str], bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, dict(answer.headers), answer.read()


def test_a_server_answers_until_it_is_stopped(folder: Path, store_url: str) -> None:
    with Background("serve", "--port", "0", "--app", "tasks:app", folder=folder, HOLDFAST_DATABASE_URL=store_url) as it:
        url = address(it)
        status, headers, body = ask(f"{url}/jobs", {"jobType": "twice", "payload": {"number": 1}})
        assert status == 202
        assert "Server" not in headers
        job = json.loads(body)["jobId"]
        shown = holdfast("jobs", "show", job, "--json", folder=folder, url=store_url).stdout
        assert json.loads(shown)["queue"] == "numbers", "what the app declares holds for whoever hands in"
        assert b"Holdfast" in ask(f"{url}/docs")[2]
        assert it.end() == 0
        assert "Traceback" not in it.said


@pytest.mark.sqlite
def test_a_port_in_use_is_an_error_message_without_traceback(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = holdfast("serve", "--port", str(port), folder=folder)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {port}: the port is in use; choose another with --port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.sqlite
def test_serve_on_a_public_address_requires_keys(folder: Path) -> None:
    """SEC-6, SEC-45."""
    done = holdfast("serve", "--host", "0.0.0.0", "--port", "0", folder=folder)
    assert done.returncode == 2
    assert "HOLDFAST_ADMIN_SECRET" in done.stderr
    assert "holdfast keys create" in done.stderr


@pytest.mark.sqlite
def test_serve_on_a_public_address_recommends_tls(folder: Path) -> None:
    """SEC-45: a clear warning when what goes over the wire can be read on the way."""
    assert holdfast("keys", "create", folder=folder).returncode == 0
    secret = {"HOLDFAST_ADMIN_SECRET": "a secret that is long enough"}
    with Background("serve", "--host", "0.0.0.0", "--port", "0", folder=folder, **secret) as it:
        it.until_it_says("ready: http://", "plain HTTP: put a proxy with TLS in front of it")
        assert it.end(signal.SIGINT) == 0


@pytest.mark.sqlite
def test_dev_serves_http_and_uses_the_next_free_port(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Background("dev", "--app", "tasks:app", "--port", str(port), folder=folder) as dev:
            url = address(dev, "HTTP API: ")
            assert port < int(url.rpartition(":")[2]) < port + 20
            dev.until_it_says("Ctrl-C stops it", f"curl {url}/jobs", f"{url}/docs")
            status, _, _ = ask(f"{url}/jobs", {"jobType": "twice", "payload": {"number": 21}})
            assert status == 202
            dev.until_it_says("twice       succeeded  attempt 1 of 2: 42")
            assert (folder / ".holdfast" / "admin-secret").stat().st_mode & 0o077 == 0
            assert dev.end() == 0


@pytest.mark.sqlite
def test_a_worker_serves_its_health_on_the_metrics_port(folder: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as free:
        port = free.getsockname()[1]
    with Background("worker", "--app", "tasks:app", "--metrics-port", str(port), folder=folder) as worker:
        worker.until_it_says(f"metrics: http://0.0.0.0:{port}/metrics", "ready: ")
        assert json.loads(ask(f"http://127.0.0.1:{port}/livez")[2]) == {"status": "ok"}
        assert json.loads(ask(f"http://127.0.0.1:{port}/readyz")[2]) == {"status": "ok"}
        assert worker.end() == 0


@pytest.mark.sqlite
def test_a_worker_whose_metrics_port_is_in_use_does_not_start(folder: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        done = holdfast("worker", "--app", "tasks:app", "--metrics-port", str(port), folder=folder)
    assert done.returncode == 2
    assert (
        f"cannot listen on 0.0.0.0 port {port}: the port is in use; choose another with --metrics-port" in done.stderr
    )
    assert "ready" not in done.stderr
    done = holdfast("worker", "--app", "tasks:app", "--metrics-port", "-1", folder=folder)
    assert (done.returncode, "invalid port -1" in done.stderr) == (2, True)


@pytest.mark.sqlite
def test_dev_serves_the_metrics_of_its_worker_separately(folder: Path) -> None:
    """C-35: the same name is in both, with other labels."""
    with Background("dev", "--app", "tasks:app", "--port", "0", folder=folder) as dev:
        url = address(dev, "HTTP API: ")
        assert ask(f"{url}/jobs", {"jobType": "twice", "payload": {"number": 21}})[0] == 202
        dev.until_it_says("twice       succeeded  attempt 1 of 2: 42")
        until(
            lambda: b'job_processed_total{job_type="twice",status="succeeded"} 1.0' in ask(f"{url}/metrics/worker")[2]
        )
        own, workers = (ask(f"{url}{path}")[2].decode() for path in ("/metrics", "/metrics/worker"))
        assert re.search(r'^db_query_duration_seconds_count\{query_type="claim_jobs"\}', workers, re.MULTILINE)
        assert re.search(r'^db_query_duration_seconds_count\{operation="\w+",table="\w+"\}', own, re.MULTILINE)
        assert "query_type" not in own
        assert 'job_queue_depth{job_type="twice"} 0.0' in workers
        assert dev.end() == 0
