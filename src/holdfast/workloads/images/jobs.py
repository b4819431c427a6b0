"""The job types: process and reprocess an image, delete it, cancel its processing, purge the CDN, sweep the storage."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from holdfast import Context
from holdfast.errors import NotFound
from holdfast.extend import Tx
from holdfast.workloads.images import objects
from holdfast.workloads.images.cdn import purge_images
from holdfast.workloads.images.extension import WRITE, ext
from holdfast.workloads.images.outcomes import TREATED, TREATED_IN_PROCESSING, counted, reported
from holdfast.workloads.images.processing import make_variants
from holdfast.workloads.images.variants import Variant

QUEUE = "images"
CONTROL_PRIORITY = 50  # before images that wait to be processed
MEMORY_MB = 2048
CPU_SECONDS = 900.0
ATTEMPTS = 12  # with pauses of about 20 minutes together: the default of 5 does not outlast an outage of half a minute
OPERATE = "admin:operate"  # of a job that only the service itself and operators create
SWEPT_AT_ONCE = 200
SWEEP_SECONDS = 60.0
UNFINISHED_SECONDS = 43_200.0  # what was not written to for so long is of a process that was killed
CONTROL: dict[str, Any] = {
    "queue": QUEUE,
    "lifecycle": "images",
    "max_attempts": 20,
    "errors": TREATED,
    "scope": WRITE,
}
RESERVED: dict[str, Any] = {  # do not wait while all slots process images
    **CONTROL,
    "reserved_slot": True,
    "needs_database": True,
}
PROCESSING: dict[str, Any] = {
    "queue": QUEUE,
    "lifecycle": "images",
    "isolation": "process",
    "memory_mb": MEMORY_MB,
    "cpu_seconds": CPU_SECONDS,
    "concurrency": 16,
    "max_attempts": ATTEMPTS,
    "scope": WRITE,
    "errors": TREATED_IN_PROCESSING,
    "needs_database": True,
}


@ext.job("IMAGE_PROCESS", **PROCESSING)
async def process(ctx: Context, image: str) -> dict[str, Any]:
    """Make the variants of an uploaded image."""
    with reported(), counted():
        return await make_variants(ctx, image)


@ext.job("IMAGE_REPROCESS", **PROCESSING)
async def reprocess(ctx: Context, image: str, variants: list[Variant] | None = None) -> dict[str, Any]:
    """Make the variants that are missing, and drop those that are not wanted any more. When the job is created,
    `variants` becomes the set that is wanted; none: it stays."""
    with reported(), counted():
        return await make_variants(ctx, image)


@ext.job("IMAGE_CANCEL", **RESERVED)
async def cancel(ctx: Context, image: str, job: str | None = None) -> dict[str, Any]:
    """End the processing of an image: it fails with the code `canceled`. `job`: only this one, not one that was created
    after the request."""
    async with ctx.transaction() as tx:
        row, ended = await tx.one(ext.q.image, tenant=ctx.tenant, id=image), None
        if row is not None and job in (None, row["job_id"]):
            with suppress(NotFound):  # pruned
                ended = await tx.withdraw(row["job_id"], "canceled", message="canceled by a client")
        result = {"image": image, "job": None if ended is None else ended.id}
        await tx.complete(result)
    return result


@ext.job("IMAGE_DELETE", **RESERVED)
async def delete(ctx: Context, image: str) -> dict[str, Any]:
    """Delete the rows of an image, then its objects, then its copies in the CDN. Each step can be repeated."""
    with reported():
        async with ctx.transaction() as tx:
            await _delete_rows(tx, ctx, image)
            doomed = [row["storage_key"] for row in await tx.all(ext.q.garbage_of_job, job_id=ctx.job_id)]
            mark = await objects.mark_of(tx)
        await objects.require_mark(mark)
        await objects.delete(doomed)
        await purge_images(ext.settings, [image], reference=ctx.job_id)
        async with ctx.transaction() as tx:
            await tx.run(ext.q.keep, keys=doomed)
            await tx.complete({"image": image, "objects": len(doomed)})
    return {"image": image, "objects": len(doomed)}


async def _delete_rows(tx: Any, ctx: Context, image_id: str) -> None:
    image = await tx.one(ext.q.any_image, tenant=ctx.tenant, id=image_id)
    if image is None:  # an earlier execution has done it
        return
    await tx.run(ext.q.lock_original, tenant=ctx.tenant, sha256=image["sha256"])
    with suppress(NotFound):  # pruned
        await tx.withdraw(image["job_id"], "canceled", message="the image is deleted")
    await tx.run(ext.q.discard_of_job, job_id=image["job_id"])
    doomed = [row["storage_key"] for row in await tx.all(ext.q.variants, ids=[image_id])]
    await tx.run(ext.q.delete_all_variants, image_id=image_id)
    if await tx.one(ext.q.delete_image, id=image_id) is None:  # another job has deleted it meanwhile
        return
    left = await tx.one(ext.q.leave_original, tenant=ctx.tenant, sha256=image["sha256"])
    if left is not None and left["images"] == 0:
        await tx.run(ext.q.delete_original, tenant=ctx.tenant, sha256=image["sha256"])
        doomed.append(left["storage_key"])
    for key in doomed:
        await tx.run(ext.q.add_garbage, storage_key=key, job_id=ctx.job_id, seconds=0)


@ext.job("IMAGE_PURGE", **CONTROL)
async def purge(ctx: Context, image: str) -> None:
    """Remove the replaced variants of an image from the CDN."""
    with reported():
        await purge_images(ext.settings, [image], reference=ctx.job_id)


@ext.job(
    "IMAGE_SWEEP",
    queue=QUEUE,
    max_attempts=20,
    idempotency="until_failed",
    concurrency=1,
    errors=TREATED,
    scope=OPERATE,
    needs_database=True,
)
async def sweep(ctx: Context) -> int:
    """Delete what crashed uploads and executions have left in the storage, and variants that were replaced."""
    with reported():
        swept = 0
        while found := await _sweep_some(ctx):
            swept += found
        await objects.storage().sweep(UNFINISHED_SECONDS, recorded=_stays)
        return swept


async def _stays(key: str) -> bool:
    """Of a key that another extension has staged in the same storage."""
    return True


async def _sweep_some(ctx: Context) -> int:
    async with ctx.transaction() as tx:
        due = {row["storage_key"]: row["job_id"] for row in await tx.all(ext.q.due_garbage, limit=SWEPT_AT_ONCE)}
        mark = await objects.mark_of(tx)
    if due:
        await objects.require_mark(mark)
    keys, folders = [key for key in due if not key.endswith("/")], [key for key in due if key.endswith("/")]
    for folder in folders:
        keys += [info.key async for info in objects.storage().list(folder.removesuffix("/"))]
    async with ctx.transaction() as tx:
        kept = {row["storage_key"] for row in await tx.all(ext.q.recorded, keys=keys)}
    await objects.delete([key for key in keys if key not in kept])
    again = [folder for folder in folders if due[folder] is not None]
    async with ctx.transaction() as tx:
        await tx.run(ext.q.look_again, keys=again, seconds=objects.LEFTOVER_SECONDS)
        await tx.run(ext.q.keep, keys=[key for key in due if key not in again])
    return len(due)


@ext.maintenance(every=SWEEP_SECONDS)
async def start_sweep(tx: Tx) -> None:
    """Once for what is due first: the key names it."""
    due = await tx.all(ext.q.due_garbage, limit=1)
    if due:
        key = f"images-sweep {due[0]['storage_key']} {due[0]['due_at'].isoformat()}"
        await ext.enqueue(tx, sweep.options(idempotency_key=key))
