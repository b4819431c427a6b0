"""A process in which the image service is not installed: it works, and serves the stored jobs of its lifecycle."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import App
from holdfast.lifecycle import BUILT_IN, Lifecycles, State
from holdfast.settings import Settings
from tests.cli.processes import environment
from tests.engine.steps import Standing, bring
from tests.server.steps import ADMIN, Served, serving

# The command line without the workloads: nothing else imports them.
BARE = """
import sys
sys.modules["holdfast.workloads"] = None
from holdfast import extension_settings
extension_settings._entry_points = lambda: ()
from holdfast.cli import main
sys.exit(main(sys.argv[1:]))
"""
STATES = (State.QUEUED, State.RUNNING, State.RETRYING, State.SUCCEEDED, State.DEAD)


@pytest.fixture
async def stored(store_url: str) -> dict[State, Standing]:
    """One in each state, by a process that has the manifest, and whose app has job types of this lifecycle."""
    app = App(Settings(database_url=store_url), name="gallery")

    @app.job("resize", lifecycle="images")
    async def resize() -> None: ...

    engine = await app.engine()
    worker = (await engine.workers.register()).id
    jobs = {state: await bring(engine, worker, Lifecycles()["images"], state) for state in STATES}
    await app.close()
    return jobs


@pytest.fixture
async def served(
    store_url: str, stored: dict[State, Standing], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    monkeypatch.setattr("holdfast.extension_settings._entry_points", lambda: ())
    async with serving(store_url) as served:
        yield served


async def test_stored_jobs_of_its_lifecycle_are_shown(served: Served, stored: dict[State, Standing]) -> None:
    """In the words of the lifecycle, which every policy keeps."""
    words = {}
    for state, job in stored.items():
        shown = await served.http.get(f"/api/admin/jobs/{job.id}", headers=ADMIN)
        words[state.value] = shown.json()["state"]
        assert (await served.http.get(f"/jobs/{job.id}")).status_code == 200
    assert words == {
        "queued": "queued",
        "running": "processing",
        "retrying": "failed_retryable",
        "succeeded": "completed",
        "dead": "failed",
    }
    listed = (await served.http.get("/jobs", params={"state": "failed_retryable"})).json()["jobs"]
    assert [job["jobId"] for job in listed] == [stored[State.RETRYING].id]


async def test_stored_jobs_of_its_lifecycle_run(served: Served, stored: dict[State, Standing]) -> None:
    engine, worker = served.engine, (await served.engine.workers.register()).id
    for state in (State.QUEUED, State.RETRYING):
        [lease] = await engine.claim(worker, types=[stored[state].type])
        assert (await engine.complete(worker, lease.id, lease.token)).state is State.SUCCEEDED
    [row] = await engine.maintenance.reap(gone=[stored[State.RUNNING].instance])
    assert (row["id"], row["state"]) == (stored[State.RUNNING].id, State.RETRYING)
    again = await engine.redrive(stored[State.DEAD].id)
    assert (await engine.reads.get(again.id)).state is State.QUEUED


async def test_new_jobs_have_its_lifecycle_if_an_app_has_declared_it(served: Served) -> None:
    made = (await served.http.post("/jobs", json={"jobType": "resize", "payload": {}})).json()
    assert (await served.engine.reads.get(made["jobId"])).lifecycle == "images"


async def test_without_such_an_app_its_lifecycle_is_unknown(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.extension_settings._entry_points", lambda: ())
    async with serving(store_url) as served:
        body = {"jobType": "resize", "payload": {}, "lifecycle": "images"}
        answer = await served.http.post("/jobs", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown_lifecycle")
        known = (await served.http.get("/api/admin/lifecycles", headers=ADMIN)).json()["lifecycles"]
        assert [each["name"] for each in known] == [machine.name for machine in BUILT_IN]


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    "command", [["jobs", "list"], ["config", "show"], ["lifecycle", "list"], ["extensions", "list"]]
)
def test_commands_work_without_it(store_url: str, tmp_path: Path, command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE, *command],
        cwd=tmp_path,
        env=environment(HOLDFAST_DATABASE_URL=store_url),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert ("failed_retryable" in done.stdout) is (command == ["jobs", "list"])
