"""A worker with one slot, which processes an image: requests to cancel or delete the image do not wait for its end."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.workloads.images.service import app
from tests.worker.in_process import until
from tests.workloads.images import steps
from tests.workloads.images.leftovers import recorded
from tests.workloads.images.steps import Service, images_working, picture

SMALL = {"variants": json.dumps([{"width": 16, "format": "webp"}])}


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It is there when an execution holds the only slot of the worker."""
    mark = tmp_path / "mark"
    monkeypatch.setattr(steps, "APP", "tests.workloads.images.holding_app:app")
    monkeypatch.setenv("IMAGES_MARK", str(mark))
    return mark


async def processing(service: Service, mark: Path) -> dict[str, Any]:
    """An image whose job only an interrupt ends."""
    accepted = await service.upload(picture(), params=SMALL)
    await until(mark.exists)
    return accepted


async def is_completed(service: Service, job_id: str) -> bool:
    return bool((await service.job(job_id))["status"] == "COMPLETED")


async def test_an_image_that_is_being_processed_is_canceled(service: Service, mark: Path) -> None:
    async with images_working(concurrency=1):
        accepted = await processing(service, mark)
        waiting = await service.upload(picture(70), params=SMALL)
        control = await service.served.http.post(f"/images/{accepted['imageId']}/cancel")
        assert control.status_code == 202
        await until(lambda: is_completed(service, control.json()["jobId"]))
        image = await service.ended(accepted["imageId"])
        assert (image["status"], image["error"]["code"]) == ("failed", "canceled")
        assert (await service.ended(waiting["imageId"]))["status"] == "completed", "the slot is free again"


async def test_an_image_that_is_being_processed_is_deleted(service: Service, mark: Path) -> None:
    async with images_working(concurrency=1):
        accepted = await processing(service, mark)
        waiting = await service.upload(picture(70), params=SMALL)
        control = await service.served.http.delete(f"/images/{accepted['imageId']}")
        assert control.status_code == 202
        await until(lambda: is_completed(service, control.json()["jobId"]))
        assert await service.gone(accepted["imageId"])
        assert (await service.ended(waiting["imageId"]))["status"] == "completed", "the slot is free again"
        job = await service.job(accepted["jobId"])
        assert (job["status"], job["error"]["code"]) == ("FAILED", "canceled")
    assert [key for key in await recorded() if accepted["imageId"] in key] == []


def test_only_these_use_the_reserved_slot() -> None:
    reserved = sorted(name for name, handler in app.handlers.items() if handler.reserved_slot)
    assert reserved == ["IMAGE_CANCEL", "IMAGE_DELETE"]
