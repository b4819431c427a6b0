"""Executions that die at each step, or lose their lease: every image ends once, equal, and leaves nothing behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context
from holdfast.errors import LeaseLost
from holdfast.workloads.images import processing
from holdfast.workloads.images.jobs import sweep
from holdfast.workloads.images.service import app
from tests.worker.in_process import until
from tests.workloads.images import steps
from tests.workloads.images.dying_app import STEPS
from tests.workloads.images.leftovers import recorded
from tests.workloads.images.steps import Service, images_working, picture

THREE = json.dumps([{"width": width, "format": "webp"} for width in (8, 16, 32)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_execution_is_repeated_and_leaves_nothing_behind(
    service: Service, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "APP", "tests.workloads.images.dying_app:app")
    monkeypatch.setenv("IMAGES_STEP", step)
    monkeypatch.setenv("IMAGES_MARK", str(tmp_path / "mark"))
    data = picture()
    async with images_working():
        image = await service.made(data, params={"variants": THREE})
        assert (tmp_path / "mark").exists()
        monkeypatch.delenv("IMAGES_STEP")
        whole = await service.made(data, params={"variants": THREE})
        await (await sweep.enqueue()).result(60)

    assert image["status"] == "completed", image
    alike = [[each[name] for name in ("name", "sha256", "bytes")] for each in image["variants"]]
    assert alike == [[each[name] for name in ("name", "sha256", "bytes")] for each in whole["variants"]]
    ends = [
        event.verb for event in await service.served.engine.reads.history(image["jobId"]) if event.verb == "complete"
    ]
    assert ends == ["complete"]
    assert service.files() == await recorded()


async def test_an_execution_that_lost_its_lease_does_not_replace_a_newer_result(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = await service.upload(picture(), params={"variants": THREE})
    engine = await app.engine()
    first, second = [(await engine.workers.register()).id for _ in range(2)]
    [stale] = await engine.claim(first, types=["IMAGE_PROCESS"])
    async with held_at_publishing(monkeypatch) as go_on:
        late = asyncio.create_task(processing.make_variants(context(stale), accepted["imageId"]))
        await until(go_on.reached.is_set)
        await engine.release(first, stale.id, stale.token)
        [current] = await engine.claim(second, types=["IMAGE_PROCESS"])
        go_on.only_first = True
        await processing.make_variants(context(current), accepted["imageId"])
        published = await service.image(accepted["imageId"])
        go_on.set()
        with pytest.raises(LeaseLost):
            await late

    assert published["status"] == "completed"
    assert without_urls(await service.image(accepted["imageId"])) == without_urls(published)
    keys = [key for key in await recorded() if key.startswith("variants/")]
    assert len(keys) == 3
    assert all(f"{accepted['jobId']}-2/" in key for key in keys)


def without_urls(image: dict[str, Any]) -> dict[str, Any]:
    """Each request signs them anew, and they say when they expire."""
    return {**image, "variants": [{**variant, "url": None} for variant in image["variants"]]}


class GoOn:
    """Executions that are about to publish: the first one waits until `set`."""

    def __init__(self) -> None:
        self.reached, self._allowed, self.only_first = asyncio.Event(), asyncio.Event(), False

    async def wait(self) -> None:
        if not self.only_first:
            self.reached.set()
            await self._allowed.wait()

    def set(self) -> None:
        self._allowed.set()


@asynccontextmanager
async def held_at_publishing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GoOn]:
    go_on, publish = GoOn(), processing._publish

    async def held(*args: Any) -> Any:
        await go_on.wait()
        return await publish(*args)

    monkeypatch.setattr(processing, "_publish", held)
    yield go_on


class NoReports:
    """What a worker would do with the reports of a handler: here nothing."""

    async def progress(self, report: Any) -> None: ...

    async def parts(self, job_id: str) -> list[Any]:
        return []

    async def recorded(self, outcome: Any) -> None: ...


def context(lease: Any) -> Context:
    return Context(lease, NoReports(), database=app.handler_database)  # type: ignore[arg-type]


async def test_a_superseded_job_publishes_nothing(service: Service) -> None:
    """The newest job of an image decides; the older one completes without a word."""
    accepted = await service.upload(picture(), params={"variants": THREE})
    body = {"variants": [{"width": 5, "format": "png"}]}
    again = await service.served.http.post(f"/images/{accepted['imageId']}/reprocess", json=body)
    async with images_working():
        older = await service.job(accepted["jobId"])
        image = await service.ended(accepted["imageId"])
    assert older["result"] == {"image": accepted["imageId"], "superseded": True}
    assert (image["jobId"], [each["name"] for each in image["variants"]]) == (again.json()["jobId"], ["w5.png"])
