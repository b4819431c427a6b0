"""create: an intent becomes a durable job, once per idempotency key."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.move import move
from holdfast.engine.registry import Resolved
from holdfast.engine.rules import Rules
from holdfast.errors import Conflict, Invalid, KeyReused
from holdfast.lifecycle import FINAL, STATUS, Actor, Idempotency, State
from holdfast.model import NewJob
from holdfast.model.json import encode
from holdfast.store import Row, Tx, q

TAKEOVERS_MAX = 5


class Created(msgspec.Struct, frozen=True):
    """The answer to a create: the first time and every time after."""

    id: str
    state: State
    existed: bool = False

    @property
    def status(self) -> str:
        return STATUS[self.state]


class NeedsTransaction(Exception):
    """A key was taken: what follows is more than one statement. Nothing has been written yet."""


async def create(
    tx: Tx, rules: Rules, jobs: list[NewJob], *, actor: Actor, accept: bool = True, alone: bool = False
) -> list[Created]:
    """Store all jobs, or none. A job whose key is taken by an equal request is that request's job.

    `accept=False` leaves the jobs of a lifecycle with a separate acceptance in `created`.
    """
    if len(jobs) > rules.limits.batch_max:
        raise Invalid(f"{len(jobs)} jobs in one call, the limit is {rules.limits.batch_max}", code="batch_too_large")
    for job in jobs:
        job.check()
    rows = [await _row(tx, rules, job, accept=accept) for job in jobs]
    inserted = {str(row["id"]): row for row in await move(tx, rules, q.insert_jobs, actor=actor, fresh=rows)}
    if len(inserted) < len(rows) and alone:
        raise NeedsTransaction
    answers = []
    for job, row in zip(jobs, rows, strict=True):
        if (stored := inserted.get(row[_ID])) is not None:
            answers.append(Created(row[_ID], State(stored["state"])))
        else:
            answers.append(await _existing(tx, rules, job, row, actor))
    rules_queues = {row["queue"] for row in inserted.values()}
    tx.after_commit(lambda: rules.wake(rules_queues))
    return answers


_ID, _KEY, _FINGERPRINT = 0, 16, 17


async def _row(tx: Tx, rules: Rules, job: NewJob, *, accept: bool) -> tuple[Any, ...]:
    """The row to insert, in the order of `insert_jobs`."""
    resolved = await rules.registry.resolve(tx, job)
    await rules.hooks.check(tx, "create", job, resolved.machine.name, job.type)
    held = resolved.machine.initial is State.CREATED and not accept
    direct = resolved.machine.initial is State.CREATED and accept
    return (
        rules.ids.job_id(rules.clock.now()),
        job.tenant,
        job.type,
        resolved.queue,
        resolved.lane,
        resolved.machine.name,
        resolved.policy_id,
        resolved.machine.mask,
        (State.CREATED if held else State.QUEUED).value,
        job.priority,
        2 if direct else 1,  # created and accepted at once are two lines of history
        job.max_attempts or resolved.policy.max_attempts,
        job.run_at,
        float(job.delay_seconds or 0),
        float(resolved.policy.lease_seconds),
        resolved.policy.late_writes,
        job.idempotency_key,
        job.fingerprint() if job.idempotency_key is not None else None,
        job.encoded_payload(),
        msgspec.json.encode(sorted(set(job.tags))).decode() if job.tags else None,
        encode(job.trace, "trace", max_bytes=4096) if job.trace else None,
        job.partition_key,
        job.redrive_of,
        job.root_id,
        job.parent_id,
    )


async def _existing(tx: Tx, rules: Rules, job: NewJob, row: tuple[Any, ...], actor: Actor) -> Created:
    """The job that holds the key, or ours if that key is free to take over."""
    for _ in range(TAKEOVERS_MAX):
        resolved = await rules.registry.resolve(tx, job)
        window = resolved.policy.idempotency_window_seconds
        holder = await tx.one(q.jobs_by_key, tenant=job.tenant, key=job.idempotency_key, window_seconds=float(window))
        if holder is not None and not _is_free(holder, resolved):
            if holder["fingerprint"] != row[_FINGERPRINT]:
                raise KeyReused(
                    f"idempotency key {job.idempotency_key!r} belongs to job {holder['id']}, created by a different "
                    "request; send the same request again, or choose a new key",
                    job_id=str(holder["id"]),
                )
            return Created(str(holder["id"]), State(holder["state"]), existed=True)
        if holder is not None:
            await tx.one(q.free_key, id=holder["id"])
        if inserted := await move(tx, rules, q.insert_jobs, actor=actor, fresh=[row]):
            return Created(row[_ID], State(inserted[0]["state"]))
    raise Conflict(
        f"idempotency key {job.idempotency_key!r} changes hands too quickly; try again", code="key_contended"
    )


def _is_free(holder: Row, resolved: Resolved) -> bool:
    match resolved.policy.idempotency:
        case Idempotency.FOREVER:
            return False
        case Idempotency.WINDOW:
            return bool(holder["window_over"])
        case Idempotency.UNTIL_FAILED:
            return State(holder["state"]) in FINAL - {State.SUCCEEDED}
