"""Every hostile file through the whole service: refused at the upload, or processed to its end; the worker lives."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from holdfast.workloads.images.service import app
from tests.worker.in_process import until
from tests.workloads.images.hostile import HOSTILE, Hostile
from tests.workloads.images.steps import ON_SQLITE, Service, images_working, picture

VARIANTS = json.dumps([{"width": 64, "format": form} for form in ("jpeg", "webp", "avif")])
AT_ONCE = 4
MEMORY_BYTES_MAX = 1 << 30  # resident, of a child; its limit is on addresses, and twice that


@ON_SQLITE
async def test_every_hostile_file_ends_as_the_table_says(service: Service) -> None:
    turns, peaks = asyncio.Semaphore(AT_ONCE), set[int]()

    async def fate(file: Hostile) -> tuple[tuple[int, str] | None, str | None]:
        async with turns:
            data = await asyncio.to_thread(file.make)
            answer = await service.served.http.post("/images", content=data, params={"variants": VARIANTS})
            if answer.status_code != 202:
                return (answer.status_code, answer.json()["code"]), None
            image = await service.ended(answer.json()["imageId"], seconds=120)
            peaks.add(peak_of_children())
            return None, image["error"]["code"] if image["status"] == "failed" else image["status"]

    async with images_working() as at_work:
        found = dict(zip((file.name for file in HOSTILE), await asyncio.gather(*map(fate, HOSTILE)), strict=True))
        assert found == {file.name: (file.at_upload, file.after) for file in HOSTILE}
        assert (await service.made(picture(), params={"variants": VARIANTS}))["status"] == "completed"
        assert not at_work.running.done()
    assert 0 < max(peaks) < MEMORY_BYTES_MAX
    assert len(HOSTILE) >= 40


def peak_of_children() -> int:
    """The largest resident size that a child of this process has had, in bytes. Other runs have children, too."""
    found = {int(file.parent.name): _status(file) for file in Path("/proc").glob("[0-9]*/status")}
    parents = {pid: int(status.get("PPid", "0")) for pid, status in found.items()}
    own = [pid for pid in found if os.getpid() in _ancestors(pid, parents)]
    return max((int(found[pid].get("VmHWM", "0 kB").split()[0]) * 1024 for pid in own if _is_child(pid)), default=0)


def _status(file: Path) -> dict[str, str]:
    try:
        return dict(line.split(":", 1) for line in file.read_text().splitlines())
    except OSError:  # it has ended
        return {}


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    seen = set[int]()
    while (pid := parents.get(pid, 0)) and pid not in seen:
        seen.add(pid)
    return seen


def _is_child(pid: int) -> bool:
    try:
        return b"child_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@ON_SQLITE
@pytest.mark.parametrize("job_type", ["IMAGE_PROCESS", "IMAGE_REPROCESS"])
async def test_an_image_that_used_up_its_cpu_time_is_not_tried_again(service: Service, job_type: str) -> None:
    """Each attempt would take as long."""
    accepted = await service.upload(picture())
    if job_type == "IMAGE_REPROCESS":
        await service.served.http.post(f"/images/{accepted['imageId']}/reprocess", json={})
    engine = await app.engine()
    worker = (await engine.workers.register()).id
    [lease] = await engine.claim(worker, types=[job_type])
    await engine.fail(worker, lease.id, lease.token, "E_CPU_LIMIT")
    image = await service.image(accepted["imageId"])
    assert (image["status"], image["error"]["code"]) == ("failed", "E_CPU_LIMIT")


async def is_processing(service: Service, image_id: str) -> bool:
    return (await service.image(image_id))["status"] == "processing"


async def test_processing_is_canceled_while_it_runs(service: Service) -> None:
    """The running job is interrupted, and its image fails with `canceled`; what it had made is swept later."""
    noise = picture(4000, 3000, "JPEG")
    wanted = [{"width": 2000 - n, "format": "avif"} for n in range(40)]
    async with images_working(concurrency=2):
        accepted = await service.upload(noise, params={"variants": json.dumps(wanted)})
        await until(lambda: is_processing(service, accepted["imageId"]))
        control = await service.served.http.post(f"/images/{accepted['imageId']}/cancel")
        assert (await service.job(control.json()["jobId"]))["status"] == "COMPLETED"
        image = await service.ended(accepted["imageId"])
    assert (image["status"], image["error"]["code"], image["variants"]) == ("failed", "canceled", [])
