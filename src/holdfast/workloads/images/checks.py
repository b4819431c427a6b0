"""What operators see of the image service: `holdfast doctor` and `holdfast jobs why`."""

from __future__ import annotations

import asyncio

from holdfast.errors import Invalid, StorageError
from holdfast.extend import Checked, Tx, fail, ok
from holdfast.model import Job
from holdfast.workloads.images import objects
from holdfast.workloads.images.extension import ext

CHECK_SECONDS = 4.0  # less than a check may take
ADVICE = "see HOLDFAST_IMAGES_STORAGE_URL and its credentials"


@ext.check("storage")
async def storage_works() -> Checked:
    mark = await ext.read(objects.mark_of)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await _write_and_delete(mark)
    except TimeoutError:
        return fail(f"{objects.storage().url} does not respond within {CHECK_SECONDS:g} s", ADVICE)
    except (StorageError, Invalid) as error:
        return fail(error.full, ADVICE)
    url = objects.storage().url
    return ok(f"{url} is empty: nothing was uploaded yet" if mark is None else f"images are kept in {url}")


async def _write_and_delete(mark: str | None) -> None:
    """A directory may be readable and not writable."""
    storage, key = objects.storage(), f"checks/{ext.app.ids.bits(64):016x}"
    await storage.check()
    await objects.require_mark(mark)
    await storage.put(key, b"a check of holdfast doctor")
    await storage.delete(key)


@ext.explain
async def image_of_job(tx: Tx, job: Job) -> str:
    image_id = (job.payload or {}).get("image")
    row = None if image_id is None else await tx.one(ext.q.image, tenant=job.tenant, id=image_id)
    if row is None:
        return "its image does not exist any more" if image_id else "it is about no image"
    newer = "" if row["job_id"] == job.id else f", of the newer job {row['job_id']}"
    return f"its image {image_id} is {row['status']}{newer}"
