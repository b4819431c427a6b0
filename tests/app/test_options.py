"""Options of a single job: how they reach its row and its policy."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, JobHandle
from holdfast.errors import Invalid
from holdfast.lifecycle import Policy, State
from holdfast.model import Job
from holdfast.sdk.definitions import Definition
from tests.app.steps import drained, jobs_in
from tests.codes import code_of

FAR = datetime(2036, 1, 1, tzinfo=UTC)


@pytest.fixture
def mail(app: App) -> Definition[[], None]:
    @app.job(queue="post", max_attempts=3, timeout=60, lease_seconds=45)
    async def mail() -> None: ...

    return mail


async def enqueued(job_type: Definition[[], None], **options: Any) -> Job:
    return await (await job_type.options(**options).enqueue()).get()


async def policy_of(app: App, job: JobHandle[Any] | Job) -> Policy:
    found = await job.get() if isinstance(job, JobHandle) else job
    return (await (await app.engine()).reads.snapshot(found.policy)).policy


async def test_without_options_a_job_uses_the_values_of_its_type(app: App, mail: Definition[[], None]) -> None:
    job = await enqueued(mail)
    assert (job.queue, job.priority, job.max_attempts, job.tags, job.tenant) == ("post", 0, 3, None, "default")
    policy = await policy_of(app, job)
    assert (policy.timeout_seconds, policy.lease_seconds) == (60, 45)


async def test_each_option_is_stored_with_the_job(app: App, mail: Definition[[], None]) -> None:
    job = await enqueued(
        mail,
        queue="express",
        priority=-5,
        idempotency_key="k",
        max_attempts=9,
        tags=["b", "a", "b"],
        lifecycle="crawl",
        subject="video 7",
        tenant="acme",
        partition_key="p",
    )
    assert (job.queue, job.priority, job.idempotency_key, job.max_attempts) == ("express", -5, "k", 9)
    assert (job.tags, job.lifecycle, job.tenant, job.partition_key) == (["a", "b"], "crawl", "acme", "p")
    assert job.subject == "video 7"


@pytest.mark.parametrize("delay", [3600, 3600.0, timedelta(hours=1)])
async def test_a_delay_is_seconds_or_a_timedelta(app: App, mail: Definition[[], None], delay: Any) -> None:
    job = await enqueued(mail, delay=delay)
    assert timedelta(minutes=59) < job.run_at - job.created_at < timedelta(minutes=61)
    assert await drained(app) == 0


async def test_run_at_sets_the_time_of_a_job(app: App, mail: Definition[[], None]) -> None:
    assert (await enqueued(mail, run_at=FAR)).run_at == FAR
    past = await enqueued(mail, run_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert await drained(app) == 1
    assert (await app.job_handle(past.id).get()).state is State.SUCCEEDED


async def test_timeout_and_policy_options_override_the_job_type(app: App, mail: Definition[[], None]) -> None:
    job = await enqueued(mail, timeout=timedelta(seconds=5), policy={"lease_seconds": 20, "backoff_base_seconds": 0})
    policy = await policy_of(app, job)
    assert (policy.timeout_seconds, policy.lease_seconds, policy.backoff_base_seconds) == (5, 20, 0)
    assert (await policy_of(app, await enqueued(mail))).timeout_seconds == 60


async def test_higher_priority_goes_first(app: App) -> None:
    ran: list[int] = []

    @app.job()
    async def note(n: int) -> None:
        ran.append(n)

    for n in (0, 5, -5):
        await note.options(priority=n).enqueue(n)
    await drained(app, concurrency=1)
    assert ran == [5, 0, -5]


async def test_a_required_capability_is_waited_for(app: App, mail: Definition[[], None]) -> None:
    job = await mail.options(requires=("gpu", "codecs:h264")).enqueue()
    assert await drained(app) == 0
    assert await drained(app, capabilities={"gpu": True}) == 0
    assert await drained(app, capabilities={"gpu": True, "codecs": ["h264"]}) == 1
    assert await job.status() == "COMPLETED"


async def test_the_requirements_of_a_type_can_be_waived_for_one_job(app: App) -> None:
    @app.job(requires=["gpu"])
    async def render() -> None: ...

    await render.enqueue()
    waived = await render.options(requires=[]).enqueue()
    assert await drained(app) == 1
    assert await waived.status() == "COMPLETED"


async def test_a_preferred_capability_is_waited_for_a_while(app: App, mail: Definition[[], None]) -> None:
    """As long as an idle worker that has it is there at all."""
    engine = await app.engine()
    await engine.heartbeat((await engine.workers.register(name="with a gpu", capabilities={"gpu": True})).id, [])
    patient = await mail.options(prefers=["gpu"], policy={"defer_seconds": 3600}).enqueue()
    hasty = await mail.options(prefers=["gpu"], policy={"defer_seconds": 0}).enqueue()
    assert await drained(app) == 1
    assert (await patient.status(), await hasty.status()) == ("PENDING", "COMPLETED")
    assert await drained(app, capabilities={"gpu": True}) == 1


async def test_chained_options_are_merged_and_the_last_value_wins(app: App, mail: Definition[[], None]) -> None:
    base = mail.options(priority=1, tags=["a"])
    job = await (await base.options(priority=2, queue="q").enqueue()).get()
    assert (job.priority, job.tags, job.queue) == (2, ["a"], "q")
    assert (await (await base.enqueue()).get()).priority == 1


async def test_tags_may_be_any_iterable_and_options_can_be_reused(app: App, mail: Definition[[], None]) -> None:
    for tags in (["b", "a"], ("a", "b"), {"a", "b"}, (tag for tag in "ab")):
        tagged = mail.options(tags=tags)
        assert [(await enqueued(tagged)).tags for _ in range(2)] == [["a", "b"]] * 2
    assert (await enqueued(mail, tags=None)).tags is None


async def test_the_same_request_with_the_same_options_is_a_repeat(app: App, mail: Definition[[], None]) -> None:
    first = await mail.options(idempotency_key="k", tags=("a",), delay=timedelta(seconds=60)).enqueue()
    again = await mail.options(idempotency_key="k", tags=["a"], delay=60.0).enqueue()
    assert (again.id, again.existed) == (first.id, True)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"prioritty": 1}, "unknown_option"),
        ({"priority": 101}, "invalid_field priority"),
        ({"priority": None}, "invalid_field priority"),
        ({"priority": 1.5}, "invalid_field priority"),
        ({"delay": -1}, "invalid_field delay_seconds"),
        ({"delay": "soon"}, "invalid_field delay_seconds"),
        ({"delay": timedelta(days=-1)}, "invalid_field delay_seconds"),
        ({"delay": 1, "run_at": FAR}, "invalid_field delay_seconds"),
        ({"run_at": datetime(2036, 1, 1)}, "invalid_field run_at"),  # noqa: DTZ001
        ({"run_at": "2036-01-01"}, "invalid_field run_at"),
        ({"queue": ""}, "invalid_field queue"),
        ({"queue": 5}, "invalid_field queue"),
        ({"tenant": ""}, "invalid_field tenant"),
        ({"partition_key": " "}, "invalid_field partition_key"),
        ({"idempotency_key": ""}, "invalid_field idempotency_key"),
        ({"max_attempts": 0}, "invalid_field max_attempts"),
        ({"timeout": 0}, "invalid_policy"),
        ({"timeout": "soon"}, "invalid_policy"),
        ({"tags": "urgent"}, "invalid_field tags"),
        ({"tags": 5}, "invalid_field tags"),
        ({"tags": [5]}, "invalid_field tags"),
        ({"requires": "gpu"}, "invalid_field requires"),
        ({"prefers": "gpu"}, "invalid_field prefers"),
        ({"lifecycle": "defualt"}, "unknown_lifecycle"),
        ({"policy": {"lease_secnods": 5}}, "invalid_policy"),
        ({"policy": {"lease_seconds": 5}}, "invalid_policy"),
        ({"policy": 5}, "policy_not_json"),
    ],
)
async def test_an_invalid_option_is_refused_and_writes_nothing(
    app: App, mail: Definition[[], None], options: dict[str, Any], code: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await mail.options(**options).enqueue()
    assert code_of(refused.value) == code
    assert await jobs_in(app) == 0


def test_an_unknown_option_suggests_the_nearest_and_lists_the_valid_ones(app: App, mail: Definition[[], None]) -> None:
    with pytest.raises(
        Invalid, match=r"unknown option 'prioritty'; did you mean 'priority'\? there are connection, delay, .*priority"
    ):
        mail.options(prioritty=1)
