"""Requests to delete one image that come at the same time, and images that share their bytes with it."""

import asyncio
import json
from collections import Counter
from typing import Any

from holdfast.store.queries import Query
from holdfast.workloads.images.service import app
from tests.server.steps import ADMIN
from tests.workloads.images.leftovers import recorded, stored, swept_when_due
from tests.workloads.images.steps import Service, images_working, picture
from tests.workloads.images.test_crashes import context

SMALL = {"variants": json.dumps([{"width": 16, "format": "webp"}])}
ROUNDS = 5
COUNTS = Query(
    "counts_of_originals",
    "SELECT original.images AS counted, count(image.id) AS images FROM holdfast_images_original AS original"
    " LEFT JOIN holdfast_images_image AS image ON image.tenant = original.tenant AND image.sha256 = original.sha256"
    " GROUP BY original.tenant, original.sha256, original.images",
)


async def assert_counts_are_right() -> None:
    rows = await (await app.engine()).store.read(lambda tx: tx.all(COUNTS))
    assert [row["counted"] for row in rows] == [row["images"] for row in rows]


async def delete(service: Service, image: dict[str, Any]) -> int:
    return (await service.served.http.delete(f"/images/{image['imageId']}")).status_code


async def test_of_requests_at_the_same_time_one_is_accepted(service: Service) -> None:
    """The other image has the same bytes, and keeps its original."""
    for size in range(20, 20 + ROUNDS):
        kept, deleted = [await service.upload(picture(size), params=SMALL) for _ in range(2)]
        assert sorted(await asyncio.gather(*(delete(service, deleted) for _ in range(4)))) == [202, 404, 404, 404]
        async with images_working():
            assert (await service.ended(kept["imageId"]))["status"] == "completed"
            await swept_when_due()
        await assert_counts_are_right()
    assert await stored() == await recorded()


async def test_of_a_batch_of_jobs_that_delete_one_image_none_is_created(service: Service) -> None:
    accepted = await service.upload(picture(), params=SMALL)
    job = {"jobType": "IMAGE_DELETE", "payload": {"image": accepted["imageId"]}}
    answer = await service.served.http.post("/jobs/batch", json={"jobs": [job, job]})
    assert (answer.status_code, answer.json()["code"]) == (404, "image_not_found")
    assert (await service.image(accepted["imageId"]))["status"] == "queued"


async def test_jobs_that_delete_one_image_count_it_once(service: Service) -> None:
    """A deletion that failed, and was redriven several times."""
    engine = await app.engine()
    for size in range(20, 20 + ROUNDS):
        kept, deleted = [await service.upload(picture(size), params=SMALL) for _ in range(2)]
        first = (await service.served.http.delete(f"/images/{deleted['imageId']}")).json()["jobId"]
        workers = [(await engine.workers.register()).id for _ in range(3)]
        [lease] = await engine.claim(workers[0], types=["IMAGE_DELETE"])
        await engine.fail(workers[0], lease.id, lease.token, "cdn_not_found", permanent=True)
        for _ in workers:
            await service.served.http.post(f"/api/admin/jobs/{first}/redrive", headers=ADMIN)
        leases = [lease for worker in workers for lease in await engine.claim(worker, types=["IMAGE_DELETE"], limit=1)]
        assert len(leases) == len(workers)
        run = app.handlers["IMAGE_DELETE"].function
        await asyncio.gather(*(run(context(lease), deleted["imageId"]) for lease in leases))
        await assert_counts_are_right()
        assert (await service.image(kept["imageId"]))["status"] == "queued"
    async with images_working():
        assert (await service.ended(kept["imageId"]))["status"] == "completed"


async def test_uploads_and_deletions_of_the_same_bytes_do_not_block_each_other(service: Service) -> None:
    """An upload waits for the key of one that is being deleted, and has counted the original already."""
    data, seen = picture(), Counter[int]()

    async def come_and_go(number: int) -> None:
        for _ in range(ROUNDS):
            headers = {"Idempotency-Key": f"key-{number % 2}"}
            answer = await service.served.http.post("/images", content=data, headers=headers, params=SMALL)
            seen[answer.status_code] += 1
            if answer.status_code == 202:
                seen[await delete(service, answer.json())] += 1

    async with images_working(concurrency=8):
        await asyncio.gather(*map(come_and_go, range(6)))
        await swept_when_due()
    assert seen[202] > ROUNDS
    assert set(seen) <= {202, 404, 409}
    await assert_counts_are_right()
    assert await stored() == await recorded()
    assert await failed_attempts() == []


async def failed_attempts() -> list[Any]:
    """Of deletions: a deadlock would be one."""
    engine, found = await app.engine(), []
    for job in (await engine.reads.page(limit=500)).jobs:
        if job.type == "IMAGE_DELETE":
            found += [each.error for each in await engine.reads.attempts(job.id) if each.outcome != "succeeded"]
    return found
