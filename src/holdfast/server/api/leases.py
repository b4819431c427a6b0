"""Converts leases to the response body of a claim."""

from __future__ import annotations

from holdfast import wire
from holdfast.engine import Engine
from holdfast.lifecycle import Policy
from holdfast.model import Lease, Part
from holdfast.server.policy_cache import PolicyCache


async def jobs_of(leases: list[Lease], engine: Engine, policies: PolicyCache) -> list[wire.ClaimedJob]:
    retried = [lease.id for lease in leases if lease.epoch > 1]  # only a job that has run before has parts
    parts = await engine.reads.parts_to_do(retried) if retried else {}
    return [_job(lease, (await policies.of_lease(lease)).policy, parts.get(lease.id, [])) for lease in leases]


def _job(lease: Lease, policy: Policy, parts: list[Part]) -> wire.ClaimedJob:
    return wire.ClaimedJob(
        job_id=lease.id,
        job_type=lease.type,
        payload=lease.payload,
        attempt=lease.attempt,
        lease_token=lease.token,
        lease_expires_at=lease.expires_at,
        checkpoint=lease.checkpoint,
        parts=[wire.PartView(**part.fields()) for part in parts],
        tenant=lease.tenant,
        queue=lease.queue,
        lifecycle=lease.lifecycle,
        priority=lease.priority,
        epoch=lease.epoch,
        max_attempts=lease.max_attempts,
        lost=lease.lost,
        max_lost=policy.max_lost,
        claimed_at=lease.claimed_at,
        created_at=lease.created_at,
        run_at=lease.run_at,
        clocks=wire.Clocks.of(policy),
        tags=lease.tags or [],
        trace=lease.trace,
    )
