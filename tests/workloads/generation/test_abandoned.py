"""Jobs that end without their images: predictions are canceled, what is paid is noted, and credits are released."""

from tests.workloads.generation.provider_stub import image_url, prediction, status, throttled, unsafe
from tests.workloads.generation.running import COSTS, Running, running, stub
from tests.workloads.generation.steps import ON_SQLITE
from tests.workloads.generation.test_partial import at

__all__ = ["running", "stub"]


def canceled(running: Running) -> int:
    return len([each for each in running.stub.of("POST", "/v1/") if each.path.endswith("/cancel")])


@ON_SQLITE
async def test_a_rejection_cancels_the_predictions_of_the_other_images(running: Running) -> None:
    running.sets(provider="poll")
    running.stub.otherwise_create = at({1: unsafe}, otherwise=prediction)
    made = await running.run(count=3)
    assert made["status"] == "rejected"
    async with running.service.working():
        await running.until_idle()
    assert canceled(running) == 2


@ON_SQLITE
async def test_a_cancel_before_the_next_poll_cancels_the_prediction(running: Running) -> None:
    running.sets(provider="poll")
    running.stub.otherwise_create = prediction
    accepted = await running.service.accepted()
    async with running.service.working():
        await running.until_waiting(accepted)
    answer = await running.service.ask("POST", f"/generations/{accepted['generationId']}/cancel")
    assert answer.json()["error"]["code"] == "canceled"
    assert await running.service.credits() == (100, 0, 100)
    async with running.service.working():
        await running.until_idle()
    assert canceled(running) == 1


@ON_SQLITE
async def test_the_last_attempt_cancels_what_it_has_waited_for(running: Running) -> None:
    running.sets(provider="poll", task_timeout_seconds=5)
    running.stub.otherwise_create = prediction
    running.stub.progress = ["processing"] * 50
    new = {"jobType": "GENERATION_RUN", "payload": {"prompt": "x", "width": 64, "height": 64}, "maxAttempts": 1}
    job = (await running.service.ask("POST", "/jobs", json=new)).json()["jobId"]
    accepted = {"jobId": job, "generationId": job}
    running.sets(provider="openai")  # the job stays with its provider, although it names none
    async with running.service.working():
        made = await running.finish(accepted, advance=10)
        await running.until_idle()
    assert (made["status"], made["error"]["code"]) == ("dead_letter", "provider_timeout")
    assert canceled(running) == 1


async def test_a_job_whose_provider_is_not_configured_any_more_releases_its_credits(running: Running) -> None:
    accepted = await running.service.accepted(provider="poll", count=2)
    running.sets(poll_url="")
    async with running.service.working():
        made = await running.finish(accepted)
    assert (made["status"], made["error"]["code"]) == ("dead_letter", "provider_refused")
    assert await running.service.credits() == (100, 0, 100)
    await running.is_clean()


@ON_SQLITE
async def test_a_provider_that_is_polled_too_often_is_asked_later_and_costs_no_attempt(running: Running) -> None:
    running.sets(provider="poll")
    running.stub.otherwise_create = prediction
    running.stub.polls = [throttled("40")] * 6
    accepted = await running.service.accepted()
    async with running.service.working():
        await running.until_waiting(accepted)
        made = await running.finish(accepted)
    job = await running.job(accepted)
    assert (made["status"], job.attempt) == ("completed", 1)
    assert len(await running.charges()) == 1


@ON_SQLITE
async def test_an_image_that_is_paid_and_cannot_be_fetched_is_a_charge(running: Running) -> None:
    running.stub.otherwise_create, running.stub.otherwise_download = image_url, status(404)
    made = await running.run()
    assert (made["status"], made["error"]["code"]) == ("dead_letter", "provider_bad_answer")
    assert [micros for _, _, micros in await running.charges()] == [COSTS["openai"]]
