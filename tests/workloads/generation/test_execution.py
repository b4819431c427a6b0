"""Generations by the providers `openai` and `poll`: their images, files, costs and credits."""

import hashlib
from typing import Any

import pytest

from holdfast.lifecycle import State
from holdfast.workloads.generation import extension
from tests.workloads.generation.provider_stub import image_url
from tests.workloads.generation.running import COSTS, Running, running, stored, stub
from tests.workloads.generation.steps import ON_SQLITE

__all__ = ["running", "stub"]


@pytest.mark.parametrize("how", ["base64", "url", "prediction"])
async def test_images_are_made_stored_and_charged_once(running: Running, how: str) -> None:
    service, stub = running.service, running.stub
    provider = "poll" if how == "prediction" else "openai"
    stub.progress = ["succeeded"]
    if how == "url":
        stub.otherwise_create = image_url
    made, billed = extension.images_made.value(provider), extension.provider_cost.value(provider)
    generation = await running.run(count=2, provider=provider)
    keys = [f"{generation['jobId']}-{place}" for place in (0, 1)]
    await running.is_delivered(generation, keys)
    assert running.paid() == dict.fromkeys(keys, 1)
    assert generation["resultUrl"] == generation["assets"][0]["url"]
    assert (generation["creditsCharged"], generation["creditsReserved"]) == (2, 0)
    assert await service.statement() == [("grant", 100), ("reserve", 2), ("commit", 2)]
    assert await running.charges() == [(key, provider, COSTS[provider]) for key in keys]
    assert extension.images_made.value(provider) - made == 2
    assert extension.provider_cost.value(provider) - billed == 2 * COSTS[provider]
    job = await running.job(generation)
    originals = service.files("originals/")
    assert originals == [f"originals/{job.id}-1/{place}.png" for place in (1, 2)]
    assert {hashlib.sha256((service.folder / key).read_bytes()).hexdigest() for key in originals} == {
        asset["sha256"] for asset in generation["assets"]
    }
    assert job.result == {"assets": [asset["assetId"] for asset in generation["assets"]], "failed": {}}


@ON_SQLITE
async def test_thumbnails_are_made_by_chained_jobs(running: Running) -> None:
    generation = await running.run(count=2, width=512, height=256)
    async with running.service.working():
        await running.until_idle()
    for asset in (await running.service.generation(generation["generationId"]))["assets"]:
        image = await running.service.http.get(asset["thumbnailUrl"])
        assert (image.status_code, image.headers["content-type"]) == (200, "image/webp")
    assert len(running.service.files("thumbnails/")) == 2
    await running.is_clean()


async def test_between_polls_a_generation_is_running_and_holds_no_slot(running: Running) -> None:
    service = running.service
    running.stub.progress = ["starting", "processing", "processing", "succeeded"]
    accepted = await service.accepted(provider="poll", count=2)
    async with service.working(concurrency=1):
        job = await running.until_waiting(accepted)
        assert (job.state, job.lease_worker) == (State.QUEUED, None)
        assert 1.5 < (job.run_at - service.clock.now()).total_seconds() <= 2
        shown = await service.generation(accepted["generationId"])
        assert (shown["status"], shown["retryCount"], "error" in shown) == ("running", 0, False)
        other = await service.accepted("another one", provider="local")  # in the only slot
        assert (await service.ended(other["generationId"]))["status"] == "completed"
        made = await running.finish(accepted)
    assert (await running.job(accepted)).attempt == 1
    assert made["retryCount"] == 0
    await running.is_delivered(made, [f"{made['jobId']}-{place}" for place in (0, 1)])
    assert len(running.keys()) == 2
    assert len(running.stub.of("GET", "/v1/predictions/")) == 6
    assert (await service.statement())[1:] == [("reserve", 2), ("commit", 2), ("reserve", 1), ("commit", 1)] or (
        await service.statement()
    )[1:] == [("reserve", 2), ("reserve", 1), ("commit", 1), ("commit", 2)]


@ON_SQLITE
async def test_the_order_has_what_was_requested(running: Running) -> None:
    running.stub.progress = ["succeeded"]
    more: dict[str, Any] = {"negativePrompt": "people", "style": "watercolor", "width": 96, "height": 64, "seed": 7}
    generation = await running.run("a pier", provider="poll", count=2, **more)
    orders = [each.body["input"] for each in running.stub.of("POST", "/v1/predictions")]
    same = {"prompt": "a pier", "negative_prompt": "people", "style": "watercolor", "width": 96, "height": 64}
    assert sorted(orders, key=lambda order: order["seed"]) == [
        {**same, "seed": seed, "num_outputs": 1} for seed in (7, 8)
    ]
    assert [asset["seed"] for asset in generation["assets"]] == [7, 8]
    assert [(asset["width"], asset["height"]) for asset in generation["assets"]] == [(96, 64)] * 2


@ON_SQLITE
async def test_a_prediction_that_does_not_end_is_given_up(running: Running) -> None:
    """Each attempt waits for the same prediction, which is paid once."""
    running.sets(task_timeout_seconds=5)
    running.stub.progress = ["processing"]
    generation = await running.run(provider="poll", advance=6)
    assert (generation["status"], generation["error"]["code"]) == ("dead_letter", "provider_timeout")
    assert running.keys() == [f"{generation['jobId']}-0"]
    assert len(await running.attempts(generation)) > 5
    assert await running.service.credits() == (100, 0, 100)


@ON_SQLITE
async def test_the_cost_that_a_provider_names_is_recorded(running: Running) -> None:
    running.stub.cost, running.stub.progress = 0.0123, ["starting", "succeeded"]
    generation = await running.run(provider="poll")
    assert await running.charges() == [(f"{generation['jobId']}-0", "poll", 12_300)]


async def test_deleted_assets_lose_their_files_and_nothing_else_does(running: Running) -> None:
    service = running.service
    kept, halved = await running.run("kept", count=2), await running.run("halved", count=2)
    async with service.working():
        await running.until_idle()
        assert len(await stored()) == 8
        gone = halved["assets"][0]["assetId"]
        assert (await service.ask("DELETE", f"/assets/{gone}")).status_code == 204
        await running.until_idle()
    assert len(await stored()) == 6
    assert not [key for key in await stored() if gone in key]
    for generation, left in ((kept, 2), (halved, 1)):
        assets = (await service.generation(generation["generationId"]))["assets"]
        assert len(assets) == left
        for asset in assets:
            assert (await service.http.get(asset["url"])).status_code == 200
            assert (await service.http.get(asset["thumbnailUrl"])).status_code == 200
    await running.is_clean()
