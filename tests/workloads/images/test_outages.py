"""Servers, workers and clients that disappear: every image ends once, equal, and leaves nothing behind."""

import asyncio
from typing import Any

import asyncpg
import pytest

from holdfast import Retry
from holdfast.errors import ObjectNotFound, StorageError, StorageUnavailable
from holdfast.sdk.handler_transactions import HandlerTransaction
from holdfast.workloads.images import objects, processing
from holdfast.workloads.images.outcomes import outcome_of
from holdfast.workloads.images.service import app
from tests.servers.s3 import S3Server
from tests.worker.in_process import until
from tests.workloads.images.leftovers import leftovers, stored, swept, swept_when_due
from tests.workloads.images.steps import Service, Sets, images_working, picture
from tests.workloads.images.test_crashes import THREE, context, held_at_publishing


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


async def test_an_empty_volume_is_an_outage_and_no_missing_original(service: Service) -> None:
    """The directory is there, but what should be mounted is not: for the storage, the object is just missing."""
    accepted = await service.upload(picture(), params={"variants": THREE})
    engine = await app.engine()
    [lease] = await engine.claim((await engine.workers.register()).id, types=["IMAGE_PROCESS"])
    mounted = service.folder.rename(service.folder.with_name("mounted"))
    for make_root in (lambda: None, service.folder.mkdir):
        make_root()
        with pytest.raises(StorageUnavailable) as raised:
            await processing.make_variants(context(lease), accepted["imageId"])
        assert isinstance(outcome_of(raised.value), Retry)
    service.folder.rmdir()
    mounted.rename(service.folder)
    await processing.make_variants(context(lease), accepted["imageId"])
    assert (await service.image(accepted["imageId"]))["status"] == "completed"


async def test_an_original_that_is_missing_among_others_is_permanent(service: Service) -> None:
    lost, kept = [await service.upload(picture(width), params={"variants": THREE}) for width in (20, 30)]
    (service.folder / objects.original_key(lost["imageId"])).unlink()
    async with images_working():
        images = [await service.ended(image["imageId"]) for image in (lost, kept)]
    assert [image["status"] for image in images] == ["failed", "completed"]
    assert images[0]["error"]["code"] == "original_missing"


async def test_a_missing_bucket_is_an_outage_and_no_missing_original(
    s3_server: S3Server, images_settings: Sets
) -> None:
    url = f"s3://not-there?endpoint={s3_server.url}&region=us-east-1"
    images_settings(storage_url=url, **S3Server.credentials)
    plan = processing.Plan("originals/a", f"{objects.MARK}1", wanted={}, recorded={}, lost=set(), known=False)
    with pytest.raises(ObjectNotFound):
        await objects.storage().read(plan.original)
    with pytest.raises(StorageError, match="has no such bucket") as raised:
        await processing._read(plan)
    assert isinstance(outcome_of(raised.value), Retry)


WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.mark.postgres
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_publishing_and_a_deletion_lock_in_the_same_order(
    service: Service, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion comes when the execution has written its rows: it waits, and neither ends in a deadlock."""
    accepted = await service.upload(picture(), params={"variants": THREE})
    engine, postgres = await app.engine(), await asyncpg.connect(store_url)
    one, other = [(await engine.workers.register()).id for _ in range(2)]
    written, go_on = asyncio.Event(), asyncio.Event()
    complete = HandlerTransaction.complete

    async def held(tx: HandlerTransaction, result: Any = None) -> None:
        written.set()
        await go_on.wait()
        await complete(tx, result)

    async def is_waiting() -> bool:
        return bool(await postgres.fetchval(WAITING))

    monkeypatch.setattr(HandlerTransaction, "complete", held)
    [lease] = await engine.claim(one, types=["IMAGE_PROCESS"])
    async with held_at_publishing(monkeypatch) as publish:
        publishing = asyncio.create_task(processing.make_variants(context(lease), accepted["imageId"]))
        await until(publish.reached.is_set)
        await service.served.http.delete(f"/images/{accepted['imageId']}")
        [control] = await engine.claim(other, types=["IMAGE_DELETE"])
        publish.set()
        await until(written.is_set)
        deletion = asyncio.create_task(app.handlers["IMAGE_DELETE"].function(context(control), accepted["imageId"]))
        await until(is_waiting)
        go_on.set()
        published, _ = await asyncio.gather(publishing, deletion)
    await postgres.close()
    assert published["superseded"]
    assert (await service.served.http.get(f"/images/{accepted['imageId']}")).status_code == 404
