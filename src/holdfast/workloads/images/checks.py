"""What operators see of the image service: `holdfast doctor` and `holdfast jobs why`."""

from __future__ import annotations

from holdfast.errors import StorageError
from holdfast.extend import Checked, Tx, fail, ok
from holdfast.model import Job
from holdfast.workloads.images import objects
from holdfast.workloads.images.extension import ext


@ext.check("storage")
async def storage_answers() -> Checked:
    storage = objects.storage()
    try:
        await storage.check()
    except StorageError as error:
        return fail(f"{storage.url}: {error.message}", "see HOLDFAST_IMAGES_STORAGE_URL and its credentials")
    return ok(f"images are kept in {storage.url}")


@ext.explain
async def image_of_job(tx: Tx, job: Job) -> str:
    image_id = (job.payload or {}).get("image")
    row = None if image_id is None else await tx.one(ext.q.image, tenant=job.tenant, id=image_id)
    if row is None:
        return "its image does not exist any more" if image_id else "it is about no image"
    newer = "" if row["job_id"] == job.id else f", of the newer job {row['job_id']}"
    return f"its image {image_id} is {row['status']}{newer}"
