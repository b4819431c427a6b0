"""What the transitions of a generation do, in their own transactions: guards, credits and the row of the request."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from holdfast.errors import Conflict, HoldfastError, InvalidField, Refused
from holdfast.extend import ClaimRequest, CreateRequest, RejectJob, Tx
from holdfast.lifecycle import State
from holdfast.model import Job, NewJob
from holdfast.workloads.generation import extension, faults, ledger
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.guard import PromptGuard
from holdfast.workloads.generation.lifecycle import GENERATION
from holdfast.workloads.generation.quota import same_for_seconds
from holdfast.workloads.generation.reservation import Order, reserve, settle
from holdfast.workloads.generation.wanted import Wanted

RUN, ABANDON = "GENERATION_RUN", "GENERATION_ABANDON"
SAFE_BLOCK = "SAFE_BLOCK"
SNOOZED = "snoozed"
ATTEMPTS_MAX = 20


def prompt_guard() -> PromptGuard:
    return _guard(ext.settings.blocklist_file, ext.settings.allowlist_file)


@cache
def _guard(blocklist_file: str, allowlist_file: str) -> PromptGuard:
    return PromptGuard(blocklist_file, allowlist_file, monotonic=ext.app.clock.monotonic)


def refused_prompt(wanted: Wanted) -> str | None:
    """The category of what the guard found."""
    return prompt_guard().refuses(wanted.guarded_text)


# -- creation -----------------------------------------------------------------------------------------------------


@ext.guard("create", job_type=RUN, batch=True)
async def allow_prompts(tx: Tx, requests: list[CreateRequest]) -> None:
    """The guard of prompts, and the key by which a repeated request is found."""
    seconds = same_for_seconds(ext.app.clock.now())
    for request in requests:
        try:
            request.state = wanted = Wanted.of(request.job.payload)
            _check_attempts(request.job)
            check_prompt(wanted)
        except HoldfastError as refusal:
            request.refuse(refusal)
            continue
        if not request.job.redrive_of:
            request.derive_key(wanted.user, *wanted.request, within_seconds=seconds)


def _check_attempts(job: NewJob) -> None:
    """Each attempt may cost money."""
    if job.max_attempts is not None and job.max_attempts > ATTEMPTS_MAX:
        raise InvalidField(f"a generation has at most {ATTEMPTS_MAX} attempts", field="max_attempts")


def check_prompt(wanted: Wanted) -> None:
    """Raises `prompt_rejected`, which says nothing about what was found: the lists are not to be guessed."""
    if (category := refused_prompt(wanted)) is not None:
        raise prompt_rejected(wanted.user, category)


def prompt_rejected(user: str, category: str) -> Refused:
    extension.refusals.add(1, faults.PROMPT_REJECTED)
    audit = ext.audit_entry(SAFE_BLOCK, user, stage="request", category=category)
    return Refused(faults.MESSAGES[faults.PROMPT_REJECTED], code=faults.PROMPT_REJECTED, audit=audit)


@ext.guard("create", job_type=RUN, batch=True)
async def take_credits(tx: Tx, requests: list[CreateRequest]) -> None:
    """Quota, then credits, and the rows of the requests. A repeated request does not get here."""
    cost = ext.settings.cost
    orders = [Order.of(request, cost) for request in requests]
    if not await reserve(tx, orders):
        return
    redriven = [order for order in orders if order.request.job.redrive_of and await _assigned(tx, order)]
    await tx.run(ext.q.add_requests, made=[_row(order) for order in orders if order not in redriven])


async def _assigned(tx: Tx, order: Order) -> bool:
    """Whether a redrive goes on with the request that its first job was for."""
    first, job_id = order.request.job.root_id, order.request.job_id
    other = await tx.one(ext.q.unfinished, id=first)
    if other is not None:
        order.request.refuse(
            Conflict(f"job {other['job_id']} already runs this generation again", code="already_redriven")
        )
        return True
    _, tenant, user, *rest = _row(order)
    again = dict(zip(REQUESTED, rest, strict=True))
    assigned = {"id": first, "job_id": job_id, "tenant": tenant, "user_id": user, **again}
    return await tx.one(ext.q.assign_job, **assigned) is not None


REQUESTED = ("prompt", "negative_prompt", "width", "height", "count", "seed", "style", "provider", "credits")


def _row(order: Order) -> tuple[Any, ...]:
    """Of `add_requests`: id, tenant, user, and what was requested."""
    job_id, wanted = order.request.job_id, order.request.state
    size = (wanted.width, wanted.height, wanted.count, wanted.seed_for(job_id))
    texts = (wanted.prompt, wanted.negative_prompt)
    return (job_id, *order.user, *texts, *size, wanted.style, wanted.provider, order.cost)


# -- later --------------------------------------------------------------------------------------------------------


@ext.guard("claim", job_type=RUN)
async def still_allowed(tx: Tx, request: ClaimRequest) -> RejectJob | None:
    """The lists may have changed since."""
    try:
        wanted = Wanted.stored(request.job.payload)
    except msgspec.ValidationError:  # edited by hand: its execution will fail
        return None
    if refused_prompt(wanted) is None:
        return None
    return RejectJob(faults.PROMPT_REJECTED, faults.MESSAGES[faults.PROMPT_REJECTED])


@ext.effect("claim", "complete", "fail", "release", "reject", "cancel", "reap", "requeue", job_type=RUN, batch=True)
async def follow(tx: Tx, verb: str, jobs: list[Job]) -> None:
    if ended := [job for job in jobs if job.final]:
        await _end_all(tx, ended)
    for job in jobs:
        if not job.final:
            await _go_on(tx, verb, job)


async def _go_on(tx: Tx, verb: str, job: Job) -> None:
    waits_for_provider = verb == "release" and job.reason == SNOOZED
    status = State.RUNNING if waits_for_provider else job.state
    error = shown_error(job) if job.state is State.RETRYING else NO_ERROR
    await tx.run(ext.q.set_status, job_id=job.id, status=GENERATION.words[status], **_retries(job), **error)


async def _end_all(tx: Tx, jobs: list[Job]) -> None:
    """What was requested is read from the rows of the requests: payloads may have been edited by hand."""
    rows = await tx.all(ext.q.requests_of_jobs, ids=[job.id for job in jobs])
    requests = {row["job_id"]: row for row in rows}
    await ledger.lock(tx, [(row["tenant"], row["user_id"]) for row in rows])  # all of them in one order
    for job in jobs:
        if job.id in requests:
            await _end(tx, job, requests[job.id])


async def _end(tx: Tx, job: Job, row: Any) -> None:
    """Settle what was reserved: a worker, a sweep, an operator or another process has ended the job."""
    user, reserved = (row["tenant"], row["user_id"]), await ledger.reserved_for(tx, job.id)
    made = await _images_made(tx, job)
    amounts = _amounts(job, reserved, made, row["count"])
    error = NO_ERROR if job.state is State.SUCCEEDED else shown_error(job)
    ended = {"status": GENERATION.words[job.state], "charged": reserved - amounts["release"], **error}
    await tx.run(ext.q.settle_request, job_id=job.id, **_retries(job), **ended)
    images = 0 if job.state is State.REJECTED else row["count"] - made
    await settle(tx, user, job.id, amounts, images=images, requested_at=job.created_at)
    if tasks := unneeded_tasks(job):
        payload = {"provider": row["provider"], "tasks": tasks}
        await ext.enqueue(tx, NewJob(type=ABANDON, payload=payload, tenant=job.tenant))
    if job.state is State.REJECTED:
        await _note_rejection(tx, job, user[1])


def unneeded_tasks(job: Job) -> list[str]:
    """Of the provider, which may still work on them for a job that has ended without their images."""
    images = (job.checkpoint or {}).get("images", [])
    is_delivered = job.state is State.SUCCEEDED
    return [image["task"] for image in images if image.get("task") and (image.get("failed") or not is_delivered)]


def _amounts(job: Job, reserved: int, made: int, count: int) -> dict[str, int]:
    if job.state is State.REJECTED:
        return {"forfeit": reserved, "release": 0}
    committed = reserved * made // count
    return {"commit": committed, "release": reserved - committed}


async def _images_made(tx: Tx, job: Job) -> int:
    made = await tx.one(ext.q.assets_made, job_id=job.id) if job.state is State.SUCCEEDED else None
    return 0 if made is None else int(made["images"])


async def _note_rejection(tx: Tx, job: Job, user: str) -> None:
    code, stage = str(job.reason), "dispatch" if job.started_at is None else "execution"
    tx.after_commit(lambda: extension.rejections.add(1, code))
    await ext.audit(tx, SAFE_BLOCK, user, stage=stage, code=code, job=job.id)


def _retries(job: Job) -> dict[str, int]:
    return {"retry_count": max(0, job.attempt - 1)}


NO_ERROR: dict[str, str | None] = {"error_code": None, "error_message": None}


def shown_error(job: Job) -> dict[str, str | None]:
    """For clients: of an error that the service does not know, only that there was one."""
    code = "canceled" if job.state is State.CANCELED else (job.error or {}).get("code", job.reason)
    if code not in faults.MESSAGES:
        return {"error_code": faults.INTERNAL, "error_message": "the image could not be generated"}
    return {"error_code": code, "error_message": faults.MESSAGES[code]}
