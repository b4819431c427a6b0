"""`holdfast jobs cancel` and `redrive`: by id, by filter, rehearsed, paced and repeated."""

import asyncio
import io
import sys

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.lifecycle import DEFAULT, Machine, State
from holdfast.lifecycle.render import from_data, to_data
from holdfast.model import NewJob
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.sample_jobs import claimed, dead, succeeded

UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"


def states(holdfast: Holdfast) -> list[str]:
    """Of all jobs, the oldest first."""
    return [job["state"] for job in reversed(holdfast("jobs", "list", "--limit", "500", "--json").json["jobs"])]


def answer_with(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Somebody sits at a terminal and types this."""
    terminal = io.StringIO(line)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)


def test_a_waiting_job_is_canceled_at_once_and_a_running_one_is_asked_to_stop(
    holdfast: Holdfast, meanwhile: Meanwhile
) -> None:
    waiting = holdfast("jobs", "create", "a").out.strip()
    _, lease = meanwhile(claimed)
    answer = holdfast("jobs", "cancel", waiting, lease.id, "--reason", "cleanup")
    assert answer.code == 0
    assert answer.rows == [[waiting, "canceled"], [lease.id, "cancel requested"]]
    assert holdfast("jobs", "show", waiting, "--json").json["reason"] == "cleanup"
    assert holdfast("jobs", "show", lease.id, "--json").json["cancelRequestedAt"] is not None


def test_a_delayed_job_is_woken_and_waking_a_running_job_is_an_error(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def delayed(engine: Engine) -> str:
        return (await engine.create(NewJob(type="later", delay_seconds=3600))).id

    waiting = meanwhile(delayed)
    _, lease = meanwhile(claimed)
    told = holdfast("jobs", "wake", "--status", "PENDING,RUNNING", "--dry-run").out.splitlines()
    assert told[2:] == ["1 job would be woken", "1 job would be skipped: already running"]
    answer = holdfast("jobs", "wake", waiting, lease.id)
    assert (answer.code, answer.rows) == (0, [[waiting, "woken"], [lease.id, "runs"]])
    assert holdfast("jobs", "show", waiting, "--json").json["reason"] == "woken"


def test_the_exit_code_is_that_of_the_first_error(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    done = meanwhile(succeeded)
    refused = holdfast("jobs", "cancel", done)
    assert (refused.code, refused.rows) == (
        4,
        [[done, f"refused: job {done} is already succeeded; it cannot be canceled"]],
    )
    gone = holdfast("jobs", "cancel", UNKNOWN_ID, "--json")
    assert gone.code == 3
    assert gone.json == {
        "dryRun": False,
        "counts": {"refused": 1},
        "jobs": [
            {
                "jobId": UNKNOWN_ID,
                "outcome": "refused",
                "newJobId": None,
                "code": "job_not_found",
                "message": f"no job '{UNKNOWN_ID}'",
            }
        ],
    }


def test_a_filter_cancels_jobs_over_many_pages(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def story(engine: Engine) -> None:
        await engine.create_many([NewJob(type="crawl") for _ in range(450)])
        await engine.create(NewJob(type="other"))

    meanwhile(story)
    answer = holdfast("jobs", "cancel", "--type", "crawl", "--yes")
    assert (answer.code, answer.out) == (0, "450 jobs canceled\n")
    assert states(holdfast).count("queued") == 1
    assert holdfast("jobs", "cancel", "--type", "crawl", "--yes").out == "no job matches\n"


def test_a_limit_selects_the_newest_jobs(holdfast: Holdfast) -> None:
    for _ in range(3):
        holdfast("jobs", "create", "a")
    assert holdfast("jobs", "cancel", "--type", "a", "--limit", "2", "--yes").out == "2 jobs canceled\n"
    assert states(holdfast) == ["queued", "canceled", "canceled"]


def test_a_dry_run_prints_the_same_and_changes_nothing(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def story(engine: Engine) -> tuple[str, str, str]:
        _, running = await claimed(engine)
        waiting = await engine.create(NewJob(type="render"))
        fixed = await engine.create(NewJob(type="render", lifecycle="images"))
        return running.id, waiting.id, fixed.id

    running, waiting, fixed = meanwhile(story)
    before = holdfast("jobs", "list", "--json").out
    rehearsed = holdfast("jobs", "cancel", "--type", "render", "--dry-run")
    assert rehearsed.code == 4
    assert rehearsed.rows[:3] == [
        [running, "cancel requested"],
        [waiting, "canceled"],
        [fixed, f"refused: job {fixed}: lifecycle 'images' does not allow cancel from 'queued'; it allows: claim"],
    ]
    assert "1 job would be asked to stop\n1 job would be canceled\n1 job would be refused\n" in rehearsed.out
    assert "  1 x illegal_move, such as: job " in rehearsed.out
    assert holdfast("jobs", "list", "--json").out == before

    done = holdfast("jobs", "cancel", "--type", "render", "--yes")
    assert done.code == 4
    assert done.out.startswith("1 job asked to stop\n1 job canceled\n1 job refused\n")


@pytest.mark.parametrize("verb", ["cancel", "redrive"])
def test_neither_ids_nor_a_filter_or_both_is_a_usage_error(holdfast: Holdfast, verb: str) -> None:
    for arguments, says in (
        ([], "no jobs given: use ids or a filter"),
        (["--yes"], "no jobs given: use ids or a filter"),
        ([UNKNOWN_ID, "--type", "a"], "use job ids or a filter, not both"),
    ):
        answer = holdfast("jobs", verb, *arguments)
        assert answer.code == 2
        assert says in answer.err


def test_without_a_terminal_the_option_yes_is_required(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    holdfast("jobs", "create", "a")
    answer = holdfast("jobs", "cancel", "--type", "a")
    assert answer.code == 2
    assert "--yes is needed to cancel by filter" in answer.err
    assert states(holdfast) == ["queued"]


@pytest.mark.parametrize(("typed", "code", "after"), [("y\n", 0, "canceled"), ("n\n", 1, "queued"), ("", 1, "queued")])
def test_on_a_terminal_the_command_asks_for_confirmation(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, after: str
) -> None:
    holdfast("jobs", "create", "a")
    answer_with(monkeypatch, typed)
    answer = holdfast("jobs", "cancel", "--type", "a")
    assert answer.code == code
    assert answer.err.startswith("cancel 1 job? [y/N] ")
    assert states(holdfast) == [after]


def test_repeated_redrives_of_a_dead_job_create_one_job(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    old = meanwhile(lambda engine: dead(engine, payload={"n": 1}))
    [[_, said]] = holdfast("jobs", "redrive", old).rows
    new = said.removeprefix("redriven as ")
    job = holdfast("jobs", "show", new, "--json").json
    assert (job["redriveOf"], job["payload"], job["state"]) == (old, {"n": 1}, "queued")
    assert holdfast("jobs", "redrive", old).rows == [[old, f"already redriven as {new}"]]
    assert holdfast("jobs", "redrive", "--state", "dead", "--yes").out == "1 job skipped: already redriven\n"
    assert len(states(holdfast)) == 2
    assert holdfast("jobs", "redrive", old, "--again").code == 0
    assert len(states(holdfast)) == 3


def test_a_filter_redrives_only_dead_jobs(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def story(engine: Engine) -> None:
        await dead(engine, "E_TIMEOUT")
        await dead(engine, "E_OTHER")
        await succeeded(engine)

    meanwhile(story)
    rehearsed = holdfast("jobs", "redrive", "--type", "render", "--dry-run", "--json").json
    assert rehearsed["counts"] == {"redriven": 2}
    assert {job["newJobId"] for job in rehearsed["jobs"]} == {None}, "nothing was made"
    assert holdfast("jobs", "redrive", "--error-code", "E_TIMEOUT", "--yes").out == "1 job redriven\n"
    assert states(holdfast) == ["dead", "dead", "succeeded", "queued"]


def test_a_job_that_is_not_finished_is_not_redriven(holdfast: Holdfast) -> None:
    job_id = holdfast("jobs", "create", "a").out.strip()
    answer = holdfast("jobs", "redrive", job_id)
    assert (answer.code, "only a finished job can be redriven" in answer.out) == (4, True)


def test_a_rate_paces_the_redrive(holdfast: Holdfast, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(engine: Engine) -> None:
        for _ in range(3):
            await dead(engine)

    meanwhile(story)
    pauses: list[float] = []

    async def note(_clock: Clock, seconds: float) -> None:
        if seconds >= 1:  # a store that closes its connections waits too, for a moment at a time
            pauses.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Clock, "sleep", note)
    monkeypatch.setattr(Clock, "monotonic", lambda _clock: 100.0)
    assert holdfast("jobs", "redrive", "--type", "render", "--rate", "0.5", "--yes").out == "3 jobs redriven\n"
    assert pauses == [2.0, 4.0], "one job at a time, each due two seconds after the one before"


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "nan"])
def test_an_impossible_rate_is_a_usage_error(holdfast: Holdfast, rate: str) -> None:
    answer = holdfast("jobs", "redrive", "--type", "a", "--rate", rate, "--yes")
    assert answer.code == 2
    assert "--rate" in answer.err


def test_a_job_of_an_apps_own_lifecycle_can_be_redriven_without_the_app(
    holdfast: Holdfast, meanwhile: Meanwhile
) -> None:
    data = to_data(DEFAULT)
    own: Machine = from_data({**data, "name": "own", "words": {**data["words"], "queued": "in line"}})

    async def story(engine: Engine) -> str:
        engine.ctx.lifecycles.declare(own)
        return await dead(engine, lifecycle="own")

    [[_, said]] = holdfast("jobs", "redrive", meanwhile(story)).rows
    job = holdfast("jobs", "show", said.removeprefix("redriven as "), "--json").json
    assert (job["lifecycle"], job["state"], job["storedState"]) == ("own", "in line", State.QUEUED)
