"""Servers, workers and clients that disappear: every image ends once, equal, and leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from holdfast.workloads.images import objects, processing
from holdfast.workloads.images.service import app
from tests.worker.in_process import until
from tests.workloads.images.leftovers import leftovers, stored, swept, swept_when_due
from tests.workloads.images.steps import Service, images_working, picture
from tests.workloads.images.test_crashes import THREE, context


async def test_what_a_deleted_image_is_still_given_is_swept_later(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its execution hears of the deletion with its next heartbeat, and the sweep may come before that."""
    accepted = await service.upload(picture(), params={"variants": THREE})
    engine = await app.engine()
    [lease] = await engine.claim((await engine.workers.register()).id, types=["IMAGE_PROCESS"])
    go_on = asyncio.Event()
    put = objects.storage().put

    async def held(*args: Any, **kwargs: Any) -> Any:
        await go_on.wait()
        return await put(*args, **kwargs)

    monkeypatch.setattr(objects.storage(), "put", held)
    late = asyncio.create_task(processing.make_variants(context(lease), accepted["imageId"]))
    await until(leftovers)
    async with images_working():
        deletion = await service.served.http.delete(f"/images/{accepted['imageId']}")
        assert (await service.job(deletion.json()["jobId"]))["status"] == "COMPLETED"
        await swept()
        assert await stored() == []
        go_on.set()
        await late
        assert len(await stored()) == 3
        await swept_when_due()
    assert await stored() == []
