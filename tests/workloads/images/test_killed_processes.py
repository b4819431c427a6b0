"""Servers and workers that are killed at each step of an upload or a deletion: others go on, and nothing is left."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from holdfast.workloads.images import objects
from holdfast.workloads.images.service import app
from tests.cli.background import Background
from tests.worker.in_process import is_done, until
from tests.workloads.images import dying_app, leftovers
from tests.workloads.images.deployment import ROOT
from tests.workloads.images.dying_app import FIRST_UPLOAD_STEPS, UPLOAD_STEPS
from tests.workloads.images.steps import Service, images_working, picture

DYING = "tests.workloads.images.dying_app:app"
VARIANTS = [{"width": 16, "format": "webp"}, {"width": 8, "format": "png"}]
WANTED = {"variants": json.dumps(VARIANTS)}
DATA = picture().ljust(1 << 20, b"\0")  # sent in several parts; decoders ignore the end
KEY = {"Idempotency-Key": "an upload"}
DAY = 86_400.0


@contextmanager
def dying(service: Service, step: str, *command: str) -> Iterator[Background]:
    """A process with the database and the storage of the service. It is killed when it reaches the step."""
    mark = service.folder.with_name("reached")
    variables = {
        "HOLDFAST_DATABASE_URL": app.settings.url,
        "HOLDFAST_IMAGES_STORAGE_URL": str(service.folder),
        "IMAGES_STEP": step,
        "IMAGES_MARK": str(mark),
        "PYTHONPATH": ROOT,
    }
    with Background(*command, "--app", DYING, folder=service.folder.parent, **variables) as process:
        yield process
        assert mark.exists()


async def killed_by_request(service: Service, step: str, method: str, path: str, **request: object) -> None:
    """The request is not acknowledged: the server dies while it handles it."""
    with dying(service, step, "serve", "--port", "0") as server:
        await asyncio.to_thread(server.until_it_says, "ready: http://")
        [url] = re.findall(r"ready: (http://[\d.]+:\d+)", server.said)
        async with httpx2.AsyncClient(base_url=url, timeout=60) as http:
            with pytest.raises(httpx2.TransportError):
                await http.request(method, path, **request)  # type: ignore[arg-type]
        await until(lambda: server.process.poll() is not None)
        assert server.process.returncode == -signal.SIGKILL, server.said


def unfinished(service: Service) -> list[Path]:
    """Files that an upload was writing."""
    return [path for path in (service.folder / ".holdfast" / "uploads").glob("*") if path.is_file()]


async def swept_a_day_later(service: Service) -> None:
    """What is stored is what rows name, the mark among it."""
    for path in unfinished(service):
        os.utime(path, times=(time.time() - DAY,) * 2)
    await leftovers.swept_when_due()
    assert unfinished(service) == []
    assert await leftovers.stored() == await leftovers.recorded()
    mark = await (await app.engine()).store.read(objects.mark_of)
    marks = [info.key async for info in objects.storage().list() if info.key.startswith(objects.MARK)]
    assert marks == ([] if mark is None else [mark])


async def is_complete(service: Service, image_id: str, data: bytes) -> None:
    image = await service.ended(image_id)
    assert leftovers.digests(image) == leftovers.expected_digests(data, VARIANTS)
    assert await leftovers.ends(image["jobId"]) == 1


FIRST = [pytest.param(True, step, id=f"first upload, {step}") for step in (*FIRST_UPLOAD_STEPS, *UPLOAD_STEPS)]
LATER = [pytest.param(False, step, id=f"later upload, {step}") for step in UPLOAD_STEPS]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("repeated", ["before the sweep", "after the sweep"])
@pytest.mark.parametrize(("is_first", "step"), [*FIRST, *LATER])
async def test_an_upload_whose_server_was_killed_is_repeated(
    service: Service, is_first: bool, step: str, repeated: str
) -> None:
    """With its key, it makes one image. An image that was acknowledged before is complete."""
    other, earlier = picture(20), []
    if not is_first:
        earlier = [await service.upload(other, params=WANTED)]
    request = {"headers": KEY, "params": WANTED}
    await killed_by_request(service, step, "POST", "/images", content=DATA, **request)
    assert await leftovers.images() == len(earlier) + (step == "after the commit of the image")
    assert bool(unfinished(service)) == (step == "inside the upload")

    async with images_working():
        if repeated == "after the sweep":
            await swept_a_day_later(service)
        accepted = await service.upload(DATA, **request)
        assert await leftovers.images() == len(earlier) + 1
        await is_complete(service, accepted["imageId"], DATA)
        for image in earlier:
            await is_complete(service, image["imageId"], other)
        await swept_a_day_later(service)
    assert len(service.files("originals/")) == len(earlier) + 1


async def with_the_same_bytes(service: Service) -> tuple[str, str]:
    first, second = [await service.upload(DATA, params=WANTED) for _ in range(2)]
    await is_complete(service, first["imageId"], DATA)
    await is_complete(service, second["imageId"], DATA)
    return first["imageId"], second["imageId"]


async def deleted(service: Service, image: str) -> None:
    job = (await service.served.http.delete(f"/images/{image}")).json()["jobId"]
    await ended_once(service, job)
    assert await service.gone(image)


async def ended_once(service: Service, job: str) -> None:
    await until(lambda: is_done(app, job))
    assert (await service.job(job))["status"] == "COMPLETED"
    assert await leftovers.ends(job) == 1


async def the_other_is_kept(service: Service, gone: str, kept: str) -> None:
    """It has its original, which is counted once: it goes with this image."""
    assert await service.gone(gone)
    assert not service.files(f"variants/{gone[-2:]}/{gone}/")
    await is_complete(service, kept, DATA)
    await swept_a_day_later(service)
    assert len(service.files("originals/")) == 1
    await deleted(service, kept)
    assert await leftovers.stored() == []


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", dying_app.DELETION_STEPS_OF_SERVER)
async def test_a_deletion_whose_server_was_killed_is_repeated(service: Service, step: str) -> None:
    async with images_working():
        gone, kept = await with_the_same_bytes(service)
    await killed_by_request(service, step, "DELETE", f"/images/{gone}")
    was_accepted = step == "after the commit of the request"
    assert await service.gone(gone) == was_accepted
    async with images_working():
        if was_accepted:
            [job] = [each.id for each in (await service.served.engine.reads.page()).jobs if each.type == "IMAGE_DELETE"]
            await ended_once(service, job)
        else:
            await deleted(service, gone)
        await the_other_is_kept(service, gone, kept)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", dying_app.DELETION_STEPS)
async def test_a_deletion_whose_worker_was_killed_is_finished_by_another(service: Service, step: str) -> None:
    """The worker's first process starts a second one."""
    async with images_working():
        gone, kept = await with_the_same_bytes(service)
    engine = service.served.engine
    with dying(service, step, "worker", "--concurrency", "1") as worker:
        job = (await service.served.http.delete(f"/images/{gone}")).json()["jobId"]
        await until(lambda: "worker process exited with SIGKILL" in worker.said)
        assert await service.gone(gone)
        await engine.maintenance.reap(gone=await engine.polls.claiming_instances())  # as when two seconds have passed
        await ended_once(service, job)
        assert await asyncio.to_thread(worker.end) == 0
    async with images_working():
        await the_other_is_kept(service, gone, kept)
