"""`holdfast jobs show`, `events` and `why`: all about one job."""

import json
import threading

import pytest

from holdfast.cli.database import place_of
from holdfast.engine import Engine
from holdfast.engine.admin.limits import declare_limits
from holdfast.model import NewJob
from holdfast.model.limits import Limit
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.sample_jobs import claimed, dead, half_done, succeeded
from tests.engine.steps import run

UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"


def facts(text: str) -> dict[str, str]:
    """The names and values above the tables."""
    lines = text.partition("\n\n")[0].splitlines()
    width = next(place for place, char in enumerate(lines[0]) if char == " " and lines[0][place + 1] != " ") + 1
    return {line[:width].strip(): line[width:] for line in lines}


def test_a_running_job_shows_its_lease_its_progress_and_its_parts(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    lease = meanwhile(half_done)
    shown = holdfast("jobs", "show", lease.id)
    said = facts(shown.out)
    assert said["state"].startswith("running since 20")
    assert said["attempt"] == "1 of 5; 0 failed, 0 lost"
    assert said["lease"].startswith("worker ")
    assert ", instance process-1, until 20" in said["lease"]
    assert said["progress"] == "█" * 12 + "░" * 12 + " 50 %  encode"
    assert (said["counters"], said["checkpoint"]) == ('{"frames":240}', '{"at":3}')
    assert (said["payload"], said["tags"]) == ('{"film":"a.mov"}', "urgent")
    assert f"720p\tcompleted\t{'█' * 24} 100 %\t" in shown.out
    assert "480p\tin_progress\t3 of 9\t" in shown.out

    job = holdfast("jobs", "show", lease.id, "--json").json
    assert job["progress"] == {"percent": 50.0, "step": "encode", "etaAt": None}
    assert job["lease"]["instanceId"] == "process-1"
    assert [part["status"] for part in job["parts"]] == ["completed", "in_progress"]


async def two_on_the_gpu(engine: Engine) -> list[str]:
    """One that runs, one that waits, and one that has ended."""
    await engine.job_limits.set("gpu", Limit(5), by="alice")
    await engine.job_limits.set("key:crawl", Limit.of(2, "10/s"), by="alice")
    await engine.job_limits.set("key:crawl b.com", Limit(1), by="alice")
    await engine.job_limits.set("queue:mail", Limit(1), by="alice")
    ended = await succeeded(engine, type="crawl", limits={"gpu": 3, "nobody's": 1}, limit_key="a.com")
    _, runs = await claimed(engine, type="crawl", limits={"gpu": 3, "nobody's": 1}, limit_key="a.com")
    await claimed(engine, type="crawl", limits={"gpu": 2}, limit_key="a.com")
    waits = await engine.create(NewJob(type="crawl", limits={"gpu": 2}, limit_key="b.com"))
    return [runs.id, waits.id, ended]


def test_a_job_shows_its_limits_and_the_units_that_it_holds(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    runs, waits, ended = meanwhile(two_on_the_gpu)
    shown = holdfast("jobs", "show", runs).out
    assert facts(shown)["limits"] == "gpu: holds 3 units; 5 at once"
    assert "key:crawl: holds 1 unit; 2 at once, 10/s (burst 10)" in shown
    assert facts(holdfast("jobs", "show", waits).out)["limits"] == "gpu: takes 2 units; 5 at once"
    assert "limits" not in facts(holdfast("jobs", "show", ended).out)

    limits = [holdfast("jobs", "show", job, "--json").json["limits"] for job in (runs, waits, ended)]
    gpu = {"name": "gpu", "units": 3, "held": 3, "concurrency": 5, "rate": None, "burst": None}
    each = {"name": "key:crawl", "units": 1, "held": 1, "concurrency": 2, "rate": 10.0, "burst": 10.0}
    own = {"name": "key:crawl b.com", "units": 1, "held": 0, "concurrency": 1, "rate": None, "burst": None}
    assert limits == [[gpu, each], [{**gpu, "units": 2, "held": 0}, own], []]


def test_a_limit_that_limits_nothing_is_not_shown(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    """An app declares it, and an operator has lifted it."""

    async def lifted(engine: Engine) -> str:
        await engine.store.write(lambda tx: declare_limits(tx, {"gpu": Limit(1)}))
        await engine.job_limits.set("gpu", None, by="alice")
        return (await engine.create(NewJob(type="crawl", limits={"gpu": 1}))).id

    assert holdfast("jobs", "show", meanwhile(lifted), "--json").json["limits"] == []


def test_a_dead_job_shows_how_it_died(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = meanwhile(lambda engine: dead(engine, "E_DISK", "no space\nleft", lifecycle="generation"))
    shown = holdfast("jobs", "show", job_id)
    assert facts(shown.out)["state"].startswith("dead_letter (dead) since ")
    assert "E_DISK: no space\n" in shown.out, "a long text keeps its lines"
    assert "finished attempts" in shown.out
    job = holdfast("jobs", "show", job_id, "--json").json
    assert (job["state"], job["storedState"], job["status"], job["reason"]) == (
        "dead_letter",
        "dead",
        "FAILED",
        "E_DISK",
    )
    assert (job["derived"], job["canceledAt"], job["partial"]) == ("Failed", None, False), "R003-22"
    assert [(attempt["outcome"], attempt["state"]) for attempt in job["attempts"]] == [("failed", "dead_letter")]


def test_attempts_name_their_worker(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def ran(engine: Engine) -> str:
        worker = (await engine.workers.register(name="press-1")).id
        lease = await run(engine, worker)
        await engine.complete(worker, lease.id, lease.token)
        return lease.id

    job_id = meanwhile(ran)
    assert "\tpress-1\t" in holdfast("jobs", "show", job_id).out
    [attempt] = holdfast("jobs", "show", job_id, "--json").json["attempts"]
    assert attempt["workerName"] == "press-1"


def test_control_characters_of_a_worker_are_escaped(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = meanwhile(lambda engine: dead(engine, message="\x1b[2J\x07[bold]gone[/bold]", payload={"a": "\x1b[31m"}))
    shown = holdfast("jobs", "show", job_id).out
    assert "\x1b" not in shown
    assert r"\x1b[2J\x07[bold]gone[/bold]" in shown


@pytest.mark.parametrize("verb", ["show", "events", "why"])
@pytest.mark.parametrize("job_id", [UNKNOWN_ID, "abc"])
def test_an_unknown_job_exits_with_3(holdfast: Holdfast, verb: str, job_id: str) -> None:
    answer = holdfast("jobs", verb, job_id)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith(f"holdfast: no job '{job_id}'; the database is ")
    assert "`holdfast jobs list` lists its jobs, --database, --app or " in answer.err


def test_the_database_is_named_without_its_password() -> None:
    assert place_of("postgresql://me:canary@h:5432/jobs") == "postgresql://me:***@h:5432/jobs"


def test_with_json_errors_are_json(holdfast: Holdfast) -> None:
    answer = holdfast("jobs", "show", UNKNOWN_ID, "--json")
    assert (answer.code, answer.out) == (3, "")
    error = json.loads(answer.err)
    assert error["code"] == "job_not_found"
    assert error["message"].startswith(f"no job '{UNKNOWN_ID}'; the database is ")


def test_the_history_uses_the_state_names_of_the_lifecycle(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = meanwhile(lambda engine: succeeded(engine, lifecycle="orchestration"))
    rows = holdfast("jobs", "events", job_id).rows
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("1", "create", "CREATED"),
        ("2", "accept", "CREATED -> QUEUED"),
        ("3", "claim", "QUEUED -> RUNNING"),
        ("4", "complete", "RUNNING -> SUCCESS"),
    ]


def test_history_as_json_is_one_object_a_line(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = meanwhile(succeeded)
    events = [json.loads(line) for line in holdfast("jobs", "events", job_id, "--json").out.splitlines()]
    assert [(event["seq"], event["verb"], event["to"]) for event in events] == [
        *((1, "create", "queued"), (2, "claim", "running"), (3, "complete", "succeeded"))
    ]
    assert {event["jobId"] for event in events} == {job_id}


def test_following_ends_with_the_last_event(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    """The job is claimed and finished by another thread while its history is being followed."""
    job_id = holdfast("jobs", "create", "render").out.strip()

    async def finish(engine: Engine) -> None:
        worker = await engine.workers.register()
        [lease] = await engine.claim(worker.id)
        await engine.complete(worker.id, lease.id, lease.token)

    later = threading.Timer(0.5, meanwhile, [finish])
    later.start()
    answer = holdfast("jobs", "events", job_id, "--follow")
    later.join()
    assert [row[2] for row in answer.rows] == ["create", "claim", "complete"]


def test_why_prints_the_blocking_reason_first(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = holdfast("jobs", "create", "render", "--queue", "mail").out.strip()
    nobody = holdfast("jobs", "why", job_id).out
    assert nobody.startswith(
        "None of 0 registered workers is enabled and alive. Start one with `holdfast worker --app module:app`"
    )

    meanwhile(lambda engine: engine.workers.register())
    assert holdfast("jobs", "why", job_id).out.startswith("Nothing blocks it")

    holdfast("queues", "pause", "mail", "--by", "alice")
    paused = holdfast("jobs", "why", job_id)
    answer, _, clauses = paused.out.partition("\n\n")
    assert answer.startswith("Queue 'mail' is paused since ")
    assert answer.endswith(" by alice. Resume it with `holdfast queues resume mail`.")
    assert [line.split("\t")[:2] for line in clauses.splitlines()] == [
        *(["yes", "state"], ["yes", "time"], ["no", "queue"], ["yes", "workers"], ["yes", "turn"])
    ]
    data = holdfast("jobs", "why", job_id, "--json").json
    assert (data["jobId"], data["answer"]) == (job_id, answer)
    assert data["clauses"][0] == {"name": "state", "holds": True, "says": "it is queued"}


def test_why_names_the_capability_that_no_worker_offers(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def story(engine: Engine) -> str:
        await engine.workers.register(capabilities={"cpu": 4})
        return (await engine.create(NewJob(type="render", requires=["gpu"]))).id

    assert holdfast("jobs", "why", meanwhile(story)).out.startswith(
        "No live worker offers gpu. Start a worker that has them"
    )


def test_why_of_a_running_job_names_its_worker(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    worker, lease = meanwhile(claimed)
    said = holdfast("jobs", "why", lease.id).out
    assert said.startswith(f"It is running: attempt 1 is with worker {worker} until ")


def test_why_of_a_finished_job_says_how_to_run_it_again(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = meanwhile(dead)
    assert holdfast("jobs", "why", job_id).out == (
        f"It is dead, which is final (E_BROKEN). `holdfast jobs show {job_id}` shows the error; "
        f"`holdfast jobs redrive {job_id}` runs it again.\n"
    )
    assert " shows the details; " in holdfast("jobs", "why", meanwhile(succeeded)).out


def test_the_reason_is_shown_where_the_error_code_is_another(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def lost(engine: Engine) -> str:
        _, lease = await claimed(engine)
        await engine.maintenance.reap(gone=["process-1"], unheard_seconds=0)
        return lease.id

    shown = holdfast("jobs", "show", meanwhile(lost)).out
    assert shown.count("timeout_soft: the worker process crashed (worker_died)") == 2, shown


async def failed_twice(engine: Engine) -> str:
    worker, lease = await claimed(engine)
    first = {"traceback": "Traceback:\n  File x\nOSError: full\n", "node": "a"}
    await engine.fail(
        worker, lease.id, lease.token, "OSError", "disk full\nof logs", context=first, retry_after_seconds=0
    )
    await engine.maintenance.requeue_due()
    [lease] = await engine.claim(worker, types=["render"])
    second = {"traceback": "Traceback:\n  connect(password=canary)\nValueError: no\n", "node": "b"}
    message = "no: password=canary"
    await engine.fail(worker, lease.id, lease.token, "E_NO", message, context=second, permanent=True)
    return lease.id


def test_attempts_show_their_error_and_on_request_the_traceback(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    job_id = meanwhile(failed_twice)
    shown = holdfast("jobs", "show", job_id).out
    attempts = shown.partition("finished attempts\n")[2].splitlines()
    assert [row.split("\t")[-1] for row in attempts] == ["OSError: disk full ...", "E_NO: no: password=***"]
    assert '{"context":{"node":"b"}}' in shown
    assert "Traceback" not in shown

    whole = holdfast("jobs", "show", job_id, "--traceback").out
    assert whole.startswith(shown), "below everything else"
    assert whole.removeprefix(shown).splitlines() == [
        *("", "traceback of attempt 1", "Traceback:", "  File x", "OSError: full"),
        *("", "traceback of attempt 2", "Traceback:", "  connect(password=***)", "ValueError: no"),
    ]
