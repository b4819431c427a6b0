"""What the jobs of an image do to its row, in the transactions of their transitions."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import NotFound
from holdfast.extend import CreateRequest, Tx
from holdfast.lifecycle import State
from holdfast.model import Job
from holdfast.workloads.images import faults
from holdfast.workloads.images.extension import ext, processing_errors
from holdfast.workloads.images.lifecycle import IMAGES
from holdfast.workloads.images.variants import read_variants, variants_json

PROCESSING = ("IMAGE_PROCESS", "IMAGE_REPROCESS")
UNCOUNTED = ("E_CRASHED", "E_CPU_LIMIT", "poison", "timeout")  # the process that worked on the image was killed


@ext.guard("create", job_type=(*PROCESSING, "IMAGE_CANCEL", "IMAGE_PURGE"))
async def image_exists(tx: Tx, request: CreateRequest) -> None:
    """Of the job's own tenant: also for jobs that a client creates by `POST /jobs`."""
    wanted_by(request.job.payload)
    await _found(tx, ext.q.image, request)


@ext.guard("create", job_type="IMAGE_DELETE")
async def hide(tx: Tx, request: CreateRequest) -> None:
    """From now on the image does not exist for clients. It is locked: of two requests to delete it, one gets a job."""
    if not request.job.redrive_of:  # its first job has hidden the image, or more
        await _found(tx, ext.q.mark_deleted, request)


async def _found(tx: Tx, query: Any, request: CreateRequest) -> None:
    image_id = str(request.job.payload.get("image"))
    if await tx.one(query, tenant=request.job.tenant, id=image_id) is None:
        raise NotFound(f"there is no image {image_id[:80]!r}", code="image_not_found")


@ext.effect("create", job_type=PROCESSING)
async def assign(tx: Tx, verb: str, job: Job) -> None:
    """The newest job of an image decides what becomes of it; results of older ones are not published. A redrive makes
    what is wanted now: there may have been newer requests."""
    image_id, wanted = job.payload["image"], wanted_by(job.payload)
    if wanted is not None and not job.redrive_of:
        await tx.run(ext.q.set_wanted, tenant=job.tenant, id=image_id, wanted=wanted)
    await tx.run(ext.q.assign_job, tenant=job.tenant, id=image_id, job_id=job.id, status=IMAGES.words[job.state])


def wanted_by(payload: dict[str, Any]) -> str | None:
    """The variants that a job asks for, as they are stored. Raises `invalid_variants`."""
    variants = payload.get("variants")
    return None if variants is None else variants_json(read_variants(msgspec.json.encode(variants)))


@ext.effect("claim", "complete", "fail", "release", "reap", job_type=PROCESSING)
async def follow(tx: Tx, verb: str, job: Job) -> None:
    error = shown_error(job.error) if job.state in (State.RETRYING, State.DEAD) else {"code": None, "message": None}
    status = {"status": IMAGES.words[job.state], "error_code": error["code"], "error_message": error["message"]}
    await tx.run(ext.q.set_status, id=job.payload["image"], job_id=job.id, **status)
    if verb == "fail" and job.reason in UNCOUNTED:
        reason = job.reason
        tx.after_commit(lambda: processing_errors.add(1, reason))
    if job.state is State.DEAD:
        await tx.run(ext.q.discard_of_job, job_id=job.id)


def shown_error(error: Any) -> dict[str, str]:
    """For clients: of an error that the service does not know, only that there was one."""
    code = (error or {}).get("code", "")
    if code not in faults.MESSAGES:
        return {"code": faults.INTERNAL, "message": "the image could not be processed"}
    return {"code": code, "message": error["message"] if code in faults.OF_IMAGE else faults.MESSAGES[code]}
