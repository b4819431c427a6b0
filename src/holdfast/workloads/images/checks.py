"""What operators see of the image service: `holdfast doctor` and `holdfast jobs why`."""

from __future__ import annotations

from holdfast.errors import Invalid, StorageError
from holdfast.extend import Checked, Tx, fail, ok, warn
from holdfast.model import Job
from holdfast.workloads.images import objects
from holdfast.workloads.images.extension import ext


@ext.check("storage")
async def storage_works() -> Checked:
    """By an object that is written and deleted: a directory may be readable and not writable."""
    key = f"checks/{ext.app.ids.bits(64):016x}"
    try:
        storage = objects.storage()
        await storage.check()
        await storage.put(key, b"a check of holdfast doctor")
        await storage.delete(key)
        is_used = await objects.has_marker()
    except (StorageError, Invalid) as error:
        return fail(str(error), "see HOLDFAST_IMAGES_STORAGE_URL and its credentials")
    if not is_used:
        return warn(f"{storage.url} has no images yet", "if it should have, mount its volume or repair the setting")
    return ok(f"images are kept in {storage.url}")


@ext.explain
async def image_of_job(tx: Tx, job: Job) -> str:
    image_id = (job.payload or {}).get("image")
    row = None if image_id is None else await tx.one(ext.q.image, tenant=job.tenant, id=image_id)
    if row is None:
        return "its image does not exist any more" if image_id else "it is about no image"
    newer = "" if row["job_id"] == job.id else f", of the newer job {row['job_id']}"
    return f"its image {image_id} is {row['status']}{newer}"
