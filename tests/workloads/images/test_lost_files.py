"""A volume that is not mounted is an outage; a file that is lost is replaced by the next upload of the same bytes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.workloads.images import objects
from tests.worker.in_process import until
from tests.workloads.images.steps import Service, images_working, picture

SMALL = {"variants": json.dumps([{"width": 16, "format": "webp"}])}


@contextmanager
def unmounted(service: Service) -> Iterator[None]:
    """Its mount point is there, and empty."""
    mounted = service.folder.rename(service.folder.with_name("mounted"))
    service.folder.mkdir()
    yield
    assert [*service.folder.rglob("originals/*/*")] == []
    for path in sorted(service.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    service.folder.rmdir()
    mounted.rename(service.folder)


async def test_a_volume_that_is_not_mounted_is_an_outage(service: Service) -> None:
    """Nothing is accepted, nothing counts as deleted, and nothing fails for good."""
    async with images_working():
        kept, deleted = [await service.made(picture(width), params=SMALL) for width in (20, 30)]
        waiting = service.files()
        with unmounted(service):
            assert await service.refused(picture(40)) == (503, "storage_unavailable")
            for url in (f"/images/{kept['imageId']}/w16.webp", kept["variants"][0]["url"]):
                assert (await service.served.http.get(url)).status_code == 503
            job = (await service.served.http.delete(f"/images/{deleted['imageId']}")).json()["jobId"]
            again = {"variants": [{"width": 8, "format": "webp"}]}
            await service.served.http.post(f"/images/{kept['imageId']}/reprocess", json=again)
            await until(lambda: is_retried(service, kept["imageId"]))
            assert (await service.served.http.get(f"/jobs/{job}")).json()["status"] in ("PENDING", "RUNNING")
        assert service.files() == waiting
        assert (await service.job(job))["status"] == "COMPLETED"
        image = await service.ended(kept["imageId"])
    assert [each["name"] for each in image["variants"]] == ["w8.webp"]
    assert not [name for name in service.files() if deleted["imageId"] in name]


async def is_retried(service: Service, image_id: str) -> bool:
    return (await service.image(image_id))["status"] == "failed_retryable"


@pytest.mark.parametrize("also", ["the image", "another image"])
async def test_an_upload_replaces_a_lost_file_of_the_same_bytes(service: Service, also: str) -> None:
    """All images with these bytes have their file again."""
    lost = await service.upload(picture(), params=SMALL)
    (service.folder / objects.original_key(lost["imageId"])).unlink()
    if also == "another image":
        await service.upload(picture(30), params=SMALL)
    async with images_working():
        assert (await service.ended(lost["imageId"]))["error"]["code"] == "original_missing"
        assert (await service.made(picture(), params=SMALL))["status"] == "completed"
        await service.served.http.post(f"/images/{lost['imageId']}/reprocess")
        assert (await service.ended(lost["imageId"]))["status"] == "completed"
    assert len(service.files("originals/")) == (1 if also == "the image" else 2)


async def test_a_variant_whose_file_is_lost_is_404_without_the_name_of_the_file(service: Service) -> None:
    async with images_working():
        image = await service.made(picture(), params=SMALL)
    [name] = service.files("variants/")
    (service.folder / name).unlink()
    answer = await service.served.http.get(f"/images/{image['imageId']}/w16.webp")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_variant")
    assert "variants/" not in answer.text


async def test_reprocessing_makes_lost_variants_again(service: Service) -> None:
    """And only these."""
    two = {"variants": json.dumps([{"width": width, "format": "webp"} for width in (8, 16)])}
    async with images_working():
        image = await service.made(picture(), params=two)
        lost, kept = service.files("variants/")
        (service.folder / lost).unlink()
        unchanged = (service.folder / kept).stat().st_mtime_ns
        await service.served.http.post(f"/images/{image['imageId']}/reprocess")
        again = await service.ended(image["imageId"])
    assert [each["sha256"] for each in again["variants"]] == [each["sha256"] for each in image["variants"]]
    assert (service.folder / kept).stat().st_mtime_ns == unchanged
    for each in again["variants"]:
        assert (await service.served.http.get(each["url"])).status_code == 200
