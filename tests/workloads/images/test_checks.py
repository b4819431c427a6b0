"""What `doctor`, `jobs why` and the server's log say of the image service."""

import asyncio
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.storage import Storage
from holdfast.workloads.images import checks, ext
from holdfast.workloads.images.checks import ADVICE
from holdfast.workloads.images.service import app
from tests.server.steps import serving
from tests.workloads.images.steps import Service, Sets, picture


async def storage_check(service: Service) -> tuple[str, str, str]:
    [probe] = [each for each in ext.checks if each.name == "storage"]
    checked = await service.served.engine.reads.check_extension(probe)
    return checked.level, checked.says, checked.advice


async def test_a_storage_that_works_is_left_as_it_was(service: Service) -> None:
    where = f"file://{service.folder}"
    assert await storage_check(service) == ("ok", f"{where} is empty: nothing was uploaded yet", "")
    assert service.files() == []
    await service.upload(picture())
    files = service.files()
    assert await storage_check(service) == ("ok", f"images are kept in {where}", "")
    assert service.files() == files


async def test_a_storage_that_can_be_read_and_not_written_fails(service: Service) -> None:
    await service.upload(picture())
    (service.folder / "checks").write_bytes(b"a file where the check needs a folder")
    level, says, advice = await storage_check(service)
    assert (level, advice) == ("fail", ADVICE)
    assert says.startswith("'checks/")


async def test_another_storage_than_that_of_the_database_fails(service: Service) -> None:
    await service.upload(picture())
    [mark] = service.folder.glob("holdfast-images-*")
    mark.rename(service.folder / "holdfast-images-other")
    level, says, _ = await storage_check(service)
    assert (level, f"has no object '{mark.name}': it is another storage" in says) == ("fail", True), says


async def test_a_storage_that_does_not_respond_fails_with_its_name(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: Storage) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Storage, "check", hang)
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.1)
    where = f"file://{service.folder}"
    assert await storage_check(service) == ("fail", f"{where} does not respond within 0.1 s", ADVICE)


async def test_a_directory_that_cannot_be_made_is_an_outage_that_is_logged(
    store_url: str, tmp_path: Path, images_settings: Sets, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    images_settings(storage_url=str(tmp_path / "file" / "objects"))
    app.settings = Settings(database_url=store_url)
    async with serving(store_url, app=app) as served:
        service = Service(served, tmp_path)
        assert await service.refused(picture()) == (503, "storage_error")
        level, says, advice = await storage_check(service)
    await app.close()
    assert (level, advice) == ("fail", ADVICE)
    assert says == f"file://{tmp_path}/file/objects: object storage failed (Not a directory)"
    [line] = [each.getMessage() for each in caplog.records if each.name == "holdfast.server.store_errors"]
    assert line.endswith(says)


async def test_why_tells_of_the_image_of_a_job(service: Service) -> None:
    image = await service.upload(picture())
    engine = service.served.engine

    async def told() -> str:
        return next(each.says for each in await engine.reads.why(image["jobId"]) if each.name == "images")

    assert await told() == f"its image {image['imageId']} is queued"
    again = await service.served.http.post(f"/images/{image['imageId']}/reprocess", json={})
    assert (await told()).endswith(f"is queued, of the newer job {again.json()['jobId']}")
    await service.served.http.delete(f"/images/{image['imageId']}")
    assert await told() == "its image does not exist any more"
