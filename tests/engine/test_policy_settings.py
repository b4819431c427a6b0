"""Policies of jobs from settings, job types and lifecycles."""

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from holdfast.assembly.engine import open_engine, retention
from holdfast.clock import MovableClock
from holdfast.engine import HeldLease, Retention
from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle import DEFAULT, Lifecycles, Machine, Policy, State
from holdfast.model import JobType, NewJob
from holdfast.settings import Settings, load

NO_FILE = Path("absent.toml")


async def policies(settings: Settings, *new: NewJob, declared: JobType | None = None) -> list[Policy]:
    """The policy of each job that is created under these settings."""
    with TemporaryDirectory() as folder:
        engine = await open_engine(msgspec.structs.replace(settings, data_dir=folder))
        try:
            if declared is not None:
                await engine.job_types.declare(declared)
            jobs = [await engine.reads.get((await engine.create(one)).id) for one in new]
            found = await engine.reads.snapshots(jobs)
        finally:
            await engine.close()
    return [found[job.policy].policy for job in jobs]


PLAIN, IMAGE, VIDEO = NewJob(type="a"), NewJob(type="b", lifecycle="images"), NewJob(type="c", lifecycle="transcode")


async def test_a_default_setting_applies_only_where_the_lifecycle_sets_no_value() -> None:
    plain, video = await policies(load({}, NO_FILE), PLAIN, VIDEO)
    assert (plain.lease_seconds, plain.heartbeat_seconds, plain.max_attempts) == (30, 10, 5)
    assert (video.lease_seconds, video.heartbeat_seconds, video.max_attempts) == (1800, 30, 3)
    assert (video.offline_seconds, video.no_progress_seconds) == (300, 1800)


async def test_a_setting_that_is_given_wins_over_the_lifecycle() -> None:
    """R003-135, R003-136, R003-137, R003-139, R003-140: each of these settings reaches `transcode`."""
    given = {"LEASE": "600", "HEARTBEAT": "20", "WORKER_OFFLINE": "120", "NO_PROGRESS": "900"}
    environment = {f"HOLDFAST_{name}_SECONDS": value for name, value in given.items()}
    plain, video = await policies(load({**environment, "HOLDFAST_MAX_ATTEMPTS": "8"}, NO_FILE), PLAIN, VIDEO)
    for policy in (plain, video):
        assert (policy.lease_seconds, policy.heartbeat_seconds, policy.max_attempts) == (600, 20, 8)
        assert (policy.offline_seconds, policy.no_progress_seconds) == (120, 900)


async def test_a_setting_that_is_given_wins_even_if_it_is_the_default() -> None:
    """R003-140: `HOLDFAST_MAX_ATTEMPTS=5` was typed, so `transcode` has five attempts and not three."""
    [video] = await policies(load({"HOLDFAST_MAX_ATTEMPTS": "5"}, NO_FILE), VIDEO)
    assert video.max_attempts == 5
    [video] = await policies(load({"HOLDFAST_NO_PROGRESS_SECONDS": "off"}, NO_FILE), VIDEO)
    assert video.no_progress_seconds is None


async def test_policy_precedence_is_request_job_type_setting_lifecycle() -> None:
    """R003-135, R003-140."""
    settings = load({"HOLDFAST_LEASE_SECONDS": "600", "HOLDFAST_MAX_ATTEMPTS": "8"}, NO_FILE)
    declared = JobType(name="c", lifecycle="transcode", policy={"max_attempts": 6, "lease_seconds": 700})
    asked = msgspec.structs.replace(VIDEO, policy={"max_attempts": 2})
    by_type, by_request, undeclared = await policies(
        settings, VIDEO, asked, msgspec.structs.replace(VIDEO, type="d"), declared=declared
    )
    assert (by_type.max_attempts, by_type.lease_seconds) == (6, 700)
    assert (by_request.max_attempts, by_request.lease_seconds) == (2, 700)
    assert (undeclared.max_attempts, undeclared.lease_seconds) == (8, 600)


async def test_a_per_lifecycle_setting_overrides_the_global_one_for_that_lifecycle_only() -> None:
    """R003-135, R003-136, R003-137, R003-139, R003-140."""
    alone = {"LEASE_SECONDS": "900", "HEARTBEAT_SECONDS": "60", "MAX_ATTEMPTS": "4", "OFFLINE_SECONDS": "240"}
    alone["NO_PROGRESS_SECONDS"] = "off"
    environment = {f"HOLDFAST_LIFECYCLE_TRANSCODE_{name}": value for name, value in alone.items()}
    plain, image, video = await policies(
        load({**environment, "HOLDFAST_MAX_ATTEMPTS": "8"}, NO_FILE), PLAIN, IMAGE, VIDEO
    )
    assert (video.lease_seconds, video.heartbeat_seconds, video.max_attempts) == (900, 60, 4)
    assert (video.offline_seconds, video.no_progress_seconds) == (240, None)
    assert (image.lease_seconds, image.heartbeat_seconds, image.max_attempts) == (600, 30, 8)
    assert (plain.lease_seconds, plain.offline_seconds, plain.max_attempts) == (30, 90, 8)


async def test_worker_and_reaper_use_the_policy_stored_with_the_job_not_their_own_settings(tmp_path: Path) -> None:
    """R003-135, R003-137, R003-139, R003-140: the policy is stored when a job is created."""
    alone = {"LEASE_SECONDS": "300", "MAX_ATTEMPTS": "2", "OFFLINE_SECONDS": "240", "NO_PROGRESS_SECONDS": "600"}
    environment = {f"HOLDFAST_LIFECYCLE_TRANSCODE_{name}": value for name, value in alone.items()}
    clock, place = MovableClock(), {"data_dir": str(tmp_path)}
    creating = await open_engine(load(environment, NO_FILE, place), clock=clock)
    engine = await open_engine(load({}, NO_FILE, place), clock=clock)
    silent, beating = [(await engine.workers.register()).id for _ in range(2)]
    await creating.create_many([VIDEO, VIDEO])
    [first], [second] = await engine.claim(silent), await engine.claim(beating)
    assert (first.expires_at - clock.now()).total_seconds() == 300
    reaped: dict[str, int] = {}
    for seconds in range(10, 610, 10):
        clock.advance(10)
        await engine.heartbeat(beating, [HeldLease(second.id, second.token)])
        if seconds <= 200:
            await engine.heartbeat(silent, [])
        reaped |= {row["id"]: seconds for row in await engine.maintenance.reap()}
    assert reaped == {first.id: 440, second.id: 600}, "both its lease and its worker's silence; no progress"
    [last] = [lease for lease in await engine.claim(beating, limit=2) if lease.id == first.id]
    ended = await engine.fail(beating, last.id, last.token, "E")
    assert (last.attempt, last.max_attempts, ended.state) == (2, 2, State.DEAD)
    for each in (creating, engine):
        await each.close()


async def test_a_job_type_adds_error_codes_to_those_of_its_lifecycle() -> None:
    """R002-22, R002-24."""
    declared = JobType(name="site", lifecycle="crawl", policy={"errors": {"login_expired": "permanent"}})
    [site] = await policies(load({}, NO_FILE), NewJob(type="site"), declared=declared)
    assert {site.treat(code).value for code in ("login_expired", "robots_disallowed")} == {"permanent"}
    assert (site.treat("captcha").value, site.treat("other").value) == ("throttled", "transient")


async def test_a_lifecycle_heartbeat_interval_is_shortened_to_fit_a_configured_lease() -> None:
    """R003-136: the 20 s are the operator's word; the 30 s between heartbeats of `transcode` are not."""
    plain, video = await policies(load({"HOLDFAST_LEASE_SECONDS": "21"}, NO_FILE), PLAIN, VIDEO)
    assert (plain.heartbeat_seconds, video.lease_seconds, video.heartbeat_seconds) == (10, 21, 7)


async def test_lifecycle_settings_that_contradict_each_other_are_rejected_at_startup() -> None:
    settings = load({"HOLDFAST_LIFECYCLE_TRANSCODE_HEARTBEAT_SECONDS": "1800"}, NO_FILE)
    with pytest.raises(Invalid, match=r"lifecycle_transcode_heartbeat_seconds: .* must be shorter than") as caught:
        await policies(settings)
    assert caught.value.code == "invalid_setting"


async def test_an_unknown_lifecycle_in_a_setting_suggests_the_nearest() -> None:
    settings = load({"HOLDFAST_LIFECYCLE_TRANSCOD_LEASE_SECONDS": "60"}, NO_FILE)
    with pytest.raises(UnknownName, match="did you mean 'lifecycle_transcode_lease_seconds'") as caught:
        await policies(settings)
    assert caught.value.code == "unknown_setting"


async def test_a_lifecycle_of_the_app_has_settings_too(tmp_path: Path) -> None:
    lifecycles = Lifecycles(Machine("night-shift", words=DEFAULT.words, moves=map(str, DEFAULT.moves)))
    settings = load({"HOLDFAST_LIFECYCLE_NIGHT_SHIFT_MAX_ATTEMPTS": "2"}, NO_FILE, {"data_dir": str(tmp_path)})
    engine = await open_engine(settings, lifecycles=lifecycles)
    job = await engine.reads.get((await engine.create(NewJob(type="a", lifecycle="night-shift"))).id)
    await engine.close()
    assert job.max_attempts == 2


async def test_a_process_without_the_app_accepts_settings_of_a_lifecycle_stored_in_the_database(tmp_path: Path) -> None:
    """R003-140: once the app has declared it in the database; a server may create such jobs, too."""
    lifecycles = Lifecycles(Machine("night-shift", words=DEFAULT.words, moves=map(str, DEFAULT.moves)))
    place = {"data_dir": str(tmp_path)}
    settings = load({"HOLDFAST_LIFECYCLE_NIGHT_SHIFT_MAX_ATTEMPTS": "2"}, NO_FILE, place)
    with pytest.raises(UnknownName, match="lifecycle_night_shift_max_attempts"):
        await open_engine(settings)
    app = await open_engine(load({}, NO_FILE, place), lifecycles=lifecycles)
    await app.job_types.declare(JobType(name="a", lifecycle="night-shift"))
    await app.close()
    engine = await open_engine(settings)
    assert (await engine.reads.get((await engine.create(NewJob(type="a"))).id)).max_attempts == 2
    await engine.close()


def test_only_succeeded_jobs_are_pruned_unless_a_setting_says_so() -> None:
    assert retention(Settings()) == Retention(succeeded=1_209_600, dead=None, canceled=None, rejected=None)
    assert not retention(Settings(retain_succeeded_seconds=None)).limits()
    assert retention(Settings(retain_dead_seconds=60)).dead == 60
