"""Parts of a job between two attempts: a policy may restart completed parts and discard partial ones."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engine.decide import Decision
from holdfast.store import Row, Tx, q


async def reset_parts(tx: Tx, decided: Iterable[tuple[str, Decision]], moved: list[Row]) -> None:
    """Reset the parts of retried jobs as their policies say."""
    retried = {row["id"] for row in moved}
    rows = [
        (job_id, not policy.keep_completed_parts, policy.discard_partial_parts)
        for job_id, decision in decided
        if (policy := decision.policy) is not None
        and job_id in retried
        and (policy.discard_partial_parts or not policy.keep_completed_parts)
    ]
    if rows:
        await tx.all(q.reset_parts, failed=rows)
