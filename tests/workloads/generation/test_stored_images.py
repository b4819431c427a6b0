"""Images in S3 and in a directory: signed URLs, outages, and what is deleted."""

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.errors import StorageUnavailable
from holdfast.lifecycle import State
from holdfast.storage.staging import Staged
from holdfast.workloads.generation import jobs, objects
from holdfast.workloads.generation.faults import MESSAGES
from tests.cli.background import Background
from tests.servers.aws import REGION
from tests.servers.s3 import BUCKET, S3Server
from tests.worker.in_process import until
from tests.workloads.generation.provider_stub import ProviderStub
from tests.workloads.generation.running import Running, provided_by, running, stored, stub
from tests.workloads.generation.steps import FINAL, ON_SQLITE, SMALL

__all__ = ["running", "stub"]


@pytest.fixture
def s3_settings(s3_server: S3Server) -> dict[str, str]:
    """An empty folder in a bucket."""
    url = f"s3://{BUCKET}/{secrets.token_hex(8)}?endpoint={s3_server.url}&region={REGION}"
    return {"storage_url": url, **S3Server.credentials}


@pytest.fixture
def in_s3(running: Running, s3_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setattr(objects, "RETRIES", 0)
    monkeypatch.setattr(objects, "REQUEST_SECONDS", 60.0)  # the server may be slow on a busy machine
    running.sets(**s3_settings)
    return running


@asynccontextmanager
async def down(server: S3Server) -> AsyncIterator[None]:
    await asyncio.to_thread(server.stop, kill=True)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)


@ON_SQLITE
async def test_images_are_kept_in_s3_which_serves_its_signed_urls(in_s3: Running, s3_server: S3Server) -> None:
    made = await in_s3.run(count=2)
    async with in_s3.service.working():
        await in_s3.until_idle()
    assert made["status"] == "completed"
    assert sorted(await stored()) == await in_s3.recorded()
    made = await in_s3.service.generation(made["generationId"])
    async with httpx2.AsyncClient(timeout=60) as browser:
        for asset in made["assets"]:
            assert asset["url"].startswith(f"{s3_server.url}/{BUCKET}/")
            image = await browser.get(asset["url"])
            assert (image.status_code, image.headers["content-type"]) == (200, "image/png")
            assert hashlib.sha256(image.content).hexdigest() == asset["sha256"]
            assert (await browser.get(asset["thumbnailUrl"])).headers["content-type"] == "image/webp"
            assert (await browser.get(asset["url"].partition("?")[0])).status_code == 403
    async with in_s3.service.working():
        for asset in made["assets"]:
            await in_s3.service.ask("DELETE", f"/assets/{asset['assetId']}")
        await in_s3.until_idle()
    assert await stored() == []
    await in_s3.is_clean()


@ON_SQLITE
async def test_an_outage_of_the_storage_is_retried(in_s3: Running, s3_server: S3Server) -> None:
    accepted = await in_s3.service.accepted(count=2)
    async with in_s3.service.working():
        async with down(s3_server):
            job = await in_s3.until_waiting(accepted)
            assert job.state is State.RETRYING
            shown = await in_s3.service.generation(accepted["generationId"])
            assert shown["error"] == {"code": "storage_unavailable", "message": MESSAGES["storage_unavailable"]}
            assert await in_s3.service.credits() == (100, 2, 98)
        made = await in_s3.finish(accepted)
    assert (made["status"], made["retryCount"]) == ("completed", 1)
    assert in_s3.paid() == {f"{accepted['jobId']}-{place}": 1 for place in (0, 1)}
    await in_s3.is_clean()


@pytest.mark.slow
async def test_a_server_with_child_processes_keeps_its_images_in_s3(
    s3_settings: dict[str, str], stub: ProviderStub, fresh_sqlite_url: str, tmp_path: Path
) -> None:
    """As an operator starts it: thumbnails are made in child processes."""
    settings = provided_by(stub, **s3_settings)
    variables: dict[str, Any] = {f"HOLDFAST_GENERATION_{name.upper()}": str(value) for name, value in settings.items()}
    variables["HOLDFAST_DATABASE_URL"] = fresh_sqlite_url
    command = ("dev", "--app", "holdfast.workloads.generation:app", "--port", "0")
    with Background(*command, folder=tmp_path, **variables) as dev:
        await asyncio.to_thread(dev.until_it_says, "HTTP API: ")
        url = re.findall(r"HTTP API: (http://[\d.:]+)", dev.said)[0]
        async with httpx2.AsyncClient(base_url=url, timeout=60) as http:
            body = {"prompt": "a lighthouse", "count": 2, **SMALL}
            path = (await http.post("/generations", json=body)).headers["location"]

            async def has_thumbnails() -> bool:
                found = (await http.get(path)).json()
                assert found["status"] == "completed" or found["status"] not in FINAL, found
                assets = found["assets"]
                return len(assets) == 2 and all("thumbnailUrl" in asset for asset in assets)

            await until(has_thumbnails)
            for asset in (await http.get(path)).json()["assets"]:
                thumbnail = await http.get(asset["thumbnailUrl"])
                assert (thumbnail.status_code, thumbnail.headers["content-type"]) == (200, "image/webp")


# -- a directory -------------------------------------------------------------------------------------------------------


@ON_SQLITE
async def test_one_image_that_cannot_be_stored_does_not_hold_up_the_others(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are stored, and not made again."""
    put = Staged.put

    async def failing(self: Staged, name: str, *args: Any, **more: Any) -> Any:
        if name == "2.png" and self.epoch == 1:
            raise StorageUnavailable("the disk is full")
        return await put(self, name, *args, **more)

    monkeypatch.setattr(Staged, "put", failing)
    accepted = await running.service.accepted(count=3)
    async with running.service.working():
        await running.until_waiting(accepted)
        assert len(running.service.files("originals/")) == 2
        made = await running.finish(accepted)
    await running.is_delivered(made, [f"{accepted['jobId']}-{place}" for place in range(3)])
    assert sorted(running.keys()) == [f"{accepted['jobId']}-{place}" for place in (0, 1, 1, 2)]
    await running.is_clean()


async def test_what_was_copied_and_not_recorded_is_swept(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that fails after it was made: the last attempt delivers the other image, and the sweep finds this one."""
    publish = Staged.publish

    async def failing(self: Staged, to: str, **more: Any) -> Any:
        keys = await publish(self, to, **more)
        if list(self.names)[-1] == "1.png":
            raise StorageUnavailable("the answer was lost")
        return keys

    monkeypatch.setattr(Staged, "publish", failing)
    made = await running.run(count=2)
    await running.is_delivered(made, [f"{made['jobId']}-1"])
    assert len([key for key in await stored() if key.endswith("/1.png")]) == 5
    await running.is_clean()
    assert not [key for key in await stored() if key.endswith("/1.png")]


async def test_an_asset_that_is_deleted_before_its_thumbnail_is_made_leaves_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = objects.storage()
    put, reached, go_on = storage.put, asyncio.Event(), asyncio.Event()

    async def held(key: str, *args: Any, **more: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await put(key, *args, **more)

    accepted = await running.service.accepted()
    monkeypatch.setattr(storage, "put", held)  # of the thumbnail: originals are staged
    async with running.service.working():
        await until(reached.is_set)
        [asset] = (await running.service.ended(accepted["generationId"]))["assets"]
        assert (await running.service.ask("DELETE", f"/assets/{asset['assetId']}")).status_code == 204
        await until(lambda: not running.service.files("originals/"))
        go_on.set()
        await running.until_idle()
    assert await stored() == []


@ON_SQLITE
async def test_a_job_cannot_delete_what_assets_have(running: Running) -> None:
    made = await running.run()
    async with running.service.working():
        await running.until_idle()
        keys = await stored()
        await jobs.delete.enqueue(keys)
        await running.until_idle()
    assert await stored() == keys
    await running.is_delivered(made, [f"{made['jobId']}-0"])
