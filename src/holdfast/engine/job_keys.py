"""The limit key and the fairness key of a new job, and the keyed lane that it belongs to."""

from __future__ import annotations

import hashlib

from holdfast.engine.registry import PolicyRegistry, Resolved
from holdfast.model import NewJob
from holdfast.model.json import decode
from holdfast.model.limits import JobKeys, keys_of


def stored_keys(
    registry: PolicyRegistry, job: NewJob, kind: Resolved, payload: str
) -> tuple[int | None, str | None, str | None]:
    """The keyed lane of a job, its limit key and its fairness key."""
    functions, given = registry.key_functions(job.type), JobKeys(job.limit_key, job.fairness_key)
    keys = given if job.keys_are_final else keys_of(job.type, kind.limits, functions, given, decode(payload))
    return None if keys == (None, None) else key_lane(kind.lane_digest, keys), *keys


def key_lane(lane_digest: str, keys: JobKeys) -> int:
    """A number below 0. Of two keys with the same number, which is as good as impossible, each waits for the other."""
    digest = hashlib.sha256("\0".join([lane_digest, *(key or "" for key in keys)]).encode()).digest()
    return -1 - (int.from_bytes(digest[:8]) >> 1)
