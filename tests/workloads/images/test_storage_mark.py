"""The mark of the storage: another storage, even one with images of its own, is an outage and never an empty one."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.workloads.images import objects
from holdfast.workloads.images.service import app
from tests.worker.in_process import until
from tests.workloads.images import leftovers
from tests.workloads.images.steps import Service, Sets, images_working, picture

SMALL = {"variants": json.dumps([{"width": 16, "format": "webp"}])}
PART_BYTES = 100_000


def marks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{objects.MARK}*"))


def of_another_deployment(service: Service) -> Path:
    """It has objects with the same keys, and a mark of its own."""
    other = Path(shutil.copytree(service.folder, service.folder.with_name("other")))
    [mark] = marks(other)
    (other / mark).rename(other / f"{objects.MARK}0123456789abcdef")
    return other


async def reasons(service: Service, job: str) -> set[str]:
    """Why the attempts of a job failed."""
    return {each.reason for each in await service.served.engine.reads.attempts(job) if each.reason}


async def test_the_storage_of_another_deployment_is_an_outage(service: Service, images_settings: Sets) -> None:
    """Nothing is accepted, and a deletion is repeated until the storage is the right one."""
    async with images_working():
        kept, deleted = [await service.made(picture(width), params=SMALL) for width in (20, 30)]
        other = of_another_deployment(service)
        before, others = service.files(), Service(service.served, other).files()
        images_settings(storage_url=str(other))

        assert await service.refused(picture(40), params=SMALL) == (503, "storage_unavailable")
        job = (await service.served.http.delete(f"/images/{deleted['imageId']}")).json()["jobId"]
        await until(lambda: reasons(service, job))
        assert await reasons(service, job) == {"storage_unavailable"}
        assert not (await service.served.engine.reads.get(job)).final
        assert service.files() == before
        assert Service(service.served, other).files() == others

        images_settings(storage_url=str(service.folder))
        assert (await service.job(job))["status"] == "COMPLETED"
        assert await service.gone(deleted["imageId"])
    assert await leftovers.stored() == await leftovers.recorded()
    assert not [key for key in service.files() if deleted["imageId"] in key]
    assert (await service.image(kept["imageId"]))["status"] == "completed"
    assert Service(service.served, other).files() == others


async def test_a_mark_that_disappears_during_an_upload_is_an_outage(service: Service) -> None:
    """The storage is looked at again when the upload is written. What was written is swept when the mark is back."""
    acknowledged = await service.upload(picture(20), params=SMALL)
    [mark] = marks(service.folder)
    content = (service.folder / mark).read_bytes()

    async def is_written() -> bool:
        return any((service.folder / ".holdfast" / "uploads").glob("*"))

    async def chunks() -> AsyncIterator[bytes]:
        yield picture(30).ljust(PART_BYTES, b"\0")
        await until(is_written)
        (service.folder / mark).unlink()
        yield bytes(PART_BYTES)

    answer = await service.served.http.post("/images", content=chunks(), params=SMALL)
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert await leftovers.images() == 1
    assert len(service.files("originals/")) == 2
    (service.folder / mark).write_bytes(content)
    async with images_working():
        assert (await service.ended(acknowledged["imageId"]))["status"] == "completed"
        await leftovers.swept_when_due()
    assert await leftovers.stored() == await leftovers.recorded()
    assert marks(service.folder) == [mark]


async def test_first_uploads_at_the_same_time_make_one_mark(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each puts one; the database decides which of them counts, and the other one is swept."""
    put_mark, both, made = objects.put_mark, asyncio.Event(), list[str]()

    async def put_together(mark: str) -> None:
        await put_mark(mark)
        made.append(mark)
        if len(made) == 2:
            both.set()
        await both.wait()

    monkeypatch.setattr(objects, "put_mark", put_together)
    accepted = await asyncio.gather(*(service.upload(picture(width), params=SMALL) for width in (20, 30)))
    mark = await (await app.engine()).store.read(objects.mark_of)
    assert marks(service.folder) == sorted(made)
    assert mark in made
    async with images_working():
        assert [(await service.ended(each["imageId"]))["status"] for each in accepted] == ["completed"] * 2
        await leftovers.swept_when_due()
    assert marks(service.folder) == [mark]
    assert await leftovers.stored() == await leftovers.recorded()
    assert (await service.upload(picture(40), params=SMALL))["status"] == "queued"
