"""Generations of several images of which some cannot be made: what is stored is not made again, and is delivered."""

from typing import Any

import pytest

from holdfast.workloads.generation.faults import MESSAGES
from tests.workloads.generation.provider_stub import (
    Answering,
    Exchange,
    error,
    image_base64,
    prediction,
    status,
    unsafe,
)
from tests.workloads.generation.running import Running, running, stub
from tests.workloads.generation.steps import ON_SQLITE

__all__ = ["running", "stub"]

refused = error(400, "invalid_value")
down = status(503)


def at(places: dict[int, Answering], otherwise: Answering = image_base64) -> Answering:
    """Another answer for the images at these places."""

    def answer(exchange: Exchange) -> None:
        place = int(exchange.key[37:].partition("-")[0])
        places.get(place, otherwise)(exchange)

    return answer


def keys_of(made: dict[str, Any], *places: int) -> list[str]:
    return [f"{made['jobId']}-{place}" for place in places]


async def test_three_of_four_images_are_charged(running: Running) -> None:
    running.stub.otherwise_create = at({2: refused})
    made = await running.run(count=4)
    await running.is_delivered(made, keys_of(made, 0, 1, 3))
    assert (await running.service.statement())[1:] == [("reserve", 4), ("commit", 3), ("release", 1)]
    assert await running.service.credits() == (97, 0, 97)
    assert (made["creditsCharged"], made["creditsReserved"], "error" in made) == (3, 0, False)
    job = await running.job(made)
    assert job.result["failed"] == {"image 3": "provider_refused"}
    assert (job.attempt, len(running.keys())) == (1, 4)
    assert len(await running.charges()) == 3
    await running.is_clean()


async def test_stored_images_are_not_made_again(running: Running) -> None:
    running.stub.otherwise_create = at({1: down})
    accepted = await running.service.accepted(count=3)
    async with running.service.working():
        await running.until_waiting(accepted)
        assert len(running.service.files("originals/")) == 2
        assert (await running.service.generation(accepted["generationId"]))["assets"] == []
        assert await running.service.credits() == (100, 3, 97)
        running.stub.otherwise_create = None
        made = await running.finish(accepted)
    await running.is_delivered(made, keys_of(made, 0, 1, 2))
    assert sorted(running.keys()) == keys_of(made, 0, 1, 1, 2)
    assert (await running.service.statement())[1:] == [("reserve", 3), ("commit", 3)]
    await running.is_clean()


async def test_the_last_attempt_delivers_what_was_made(running: Running) -> None:
    running.stub.otherwise_create = at({0: down, 2: down})
    made = await running.run(count=4)
    await running.is_delivered(made, keys_of(made, 1, 3))
    assert (await running.service.statement())[1:] == [("reserve", 4), ("commit", 2), ("release", 2)]
    job = await running.job(made)
    assert job.result["failed"] == {"image 1": "provider_unavailable", "image 3": "provider_unavailable"}
    assert job.attempt == job.max_attempts
    assert sorted(running.keys()) == sorted(keys_of(made, *[0] * 5, 1, *[2] * 5, 3))
    await running.is_clean()


@ON_SQLITE
async def test_nothing_made_is_a_dead_letter(running: Running) -> None:
    """Whether the images fail at once or in the last attempt."""
    running.stub.otherwise_create = at({0: refused, 1: down})
    made = await running.run(count=2)
    assert made["status"] == "dead_letter"
    assert made["error"]["message"] == MESSAGES[made["error"]["code"]]
    assert (await running.service.statement())[1:] == [("reserve", 2), ("release", 2)]
    assert sorted(running.keys()) == sorted(keys_of(made, 0, *[1] * 5))


@ON_SQLITE
async def test_one_rejected_image_rejects_the_generation(running: Running) -> None:
    """No image of it is shown, and none stays in the storage."""
    running.stub.otherwise_create = at({2: unsafe})
    made = await running.run(count=4)
    assert (made["status"], made["error"]["code"], made["assets"]) == ("rejected", "provider_rejected", [])
    assert (await running.service.statement())[1:] == [("reserve", 4), ("forfeit", 4)]
    await running.is_clean()
    assert running.service.files() == []


@ON_SQLITE
@pytest.mark.parametrize("code", ["provider_refused", "provider_failed"])
async def test_predictions_of_one_generation_end_differently(running: Running, code: str) -> None:
    """One ends at once, one is refused or fails and is ordered again, one is polled."""
    stub = running.stub
    stub.progress = ["processing", "processing", "succeeded"]

    def at_once(exchange: Exchange) -> None:
        made = exchange.prediction
        made.progress = ["succeeded"]
        exchange.reply(201, stub.shown(made))

    def failing(exchange: Exchange) -> None:
        made = exchange.prediction
        if exchange.key.count("-") == 5:
            made.progress, made.error = ["failed"], "an error"
        exchange.reply(201, stub.shown(made))

    stub.otherwise_create = at({0: at_once, 1: refused if code == "provider_refused" else failing}, prediction)
    made = await running.run(count=3, provider="poll")
    delivered = keys_of(made, 0, 2)
    if code == "provider_failed":
        delivered.insert(1, f"{made['jobId']}-1-1")
    await running.is_delivered(made, delivered)
    failed = {"image 2": code} if code == "provider_refused" else {}
    assert (await running.job(made)).result["failed"] == failed
    assert all(count == 1 for count in running.stub.paid.values())


@ON_SQLITE
async def test_an_image_that_is_pending_in_the_last_attempt_is_waited_for(running: Running) -> None:
    running.stub.progress = ["processing"] * 4 + ["succeeded"]
    running.stub.polls = [status(503)] * 4
    made = await running.run(provider="poll")
    assert (made["status"], made["retryCount"]) == ("completed", 4)
    assert len(running.keys()) == 1
