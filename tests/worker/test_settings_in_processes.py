"""Settings of policies in a real worker process, for the jobs that it makes and runs."""

from pathlib import Path
from typing import Any

from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.store import open_store
from tests.cli.background import Background
from tests.worker.real_processes.harness import eventually

REPOSITORY = str(Path(__file__).parents[2])
# A worker that nothing makes beat in the time of this test, but the setting of one lifecycle.
GIVEN = {"LEASE_SECONDS": "7200", "HEARTBEAT_SECONDS": "3600", "MAX_ATTEMPTS": "8"}
ALONE = {
    "LEASE_SECONDS": "900",
    "HEARTBEAT_SECONDS": "0.2",
    "MAX_ATTEMPTS": "4",
    "OFFLINE_SECONDS": "240",
    "NO_PROGRESS_SECONDS": "450",
}


async def test_a_worker_process_applies_the_settings_of_each_lifecycle(fresh_sqlite_url: str, tmp_path: Path) -> None:
    """R003-135, R003-136, R003-137, R003-139, R003-140: request over job type over the setting of the lifecycle
    over the setting for all over what the lifecycle says."""
    variables = {f"HOLDFAST_{name}": value for name, value in GIVEN.items()}
    variables |= {f"HOLDFAST_LIFECYCLE_TRANSCODE_{name}": value for name, value in ALONE.items()}
    variables["HOLDFAST_LIFECYCLE_NIGHT_SHIFT_MAX_ATTEMPTS"] = "3"  # of the app
    variables |= {"PYTHONPATH": REPOSITORY, "HOLDFAST_DATABASE_URL": fresh_sqlite_url}
    engine = Engine(await open_store(fresh_sqlite_url))
    try:
        await engine.create(NewJob(type="order"))
        with Background("worker", "--app", "tests.worker.studio_app:app", folder=tmp_path, **variables) as worker:
            found = await eventually(lambda: running(engine, 5))
            seen = [await seen_of(engine, job) for job in found]
            seen.sort(key=lambda one: (one["type"], one["attempts"]))
            transcode = {"beat": 0.2, "offline": 240, "no_progress": 450}
            assert seen == [
                {"type": "cleaning", "lease": 7200, "attempts": 3, "beat": 3600, "offline": 90, "no_progress": None},
                {"type": "film", "lease": 900, "attempts": 4, **transcode},
                {"type": "still", "lease": 7200, "attempts": 8, "beat": 3600, "offline": 90, "no_progress": None},
                {"type": "trailer", "lease": 700, "attempts": 2, **transcode},
                {"type": "trailer", "lease": 700, "attempts": 6, **transcode},
            ]
            film, ends = next(job for job in found if job.type == "film"), set[Any]()

            async def renewed() -> bool:
                ends.add((await engine.reads.get(film.id)).lease_expires_at)
                return len(ends) > 3

            await eventually(renewed)
            assert worker.process.poll() is None, worker.said
        doctor = Background("doctor", "--app", "tests.worker.studio_app:app", folder=tmp_path, **variables)
        assert doctor.process.wait(60) is not None
        assert "lifecycle_night_shift" not in doctor.said, doctor.said
    finally:
        await engine.close()


async def running(engine: Engine, number: int) -> list[Any]:
    found = [job for job in (await engine.reads.page()).jobs if job.state == "running" and job.type != "order"]
    return found if len(found) == number else []


async def seen_of(engine: Engine, job: Any) -> dict[str, Any]:
    policy = (await engine.reads.snapshot(job.policy)).policy
    return {
        "type": job.type,
        "lease": policy.lease_seconds,
        "attempts": job.max_attempts,
        "beat": policy.heartbeat_seconds,
        "offline": policy.offline_seconds,
        "no_progress": policy.no_progress_seconds,
    }
