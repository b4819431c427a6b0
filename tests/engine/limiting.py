"""Limits in tests: declare types with them, fill queues, and count by hand what running jobs hold."""

import json
from collections import Counter
from typing import Any, NamedTuple

from holdfast.engine import Engine
from holdfast.model import JobType, Lease, NewJob
from holdfast.model.limits import JobLimits, Limit
from tests.engine.steps import ask

OPERATOR = "olga"


async def declare(
    engine: Engine,
    name: str = "crawl",
    *,
    limit: Limit | None = None,
    per_key: Limit | None = None,
    limit_key: str | None = None,
    fairness_key: str | None = None,
    units: dict[str, int] | None = None,
    **about: Any,
) -> None:
    limits = JobLimits(of_type=limit, of_key=per_key, key_from=limit_key, fair_from=fairness_key, units=units or {})
    await engine.job_types.declare(JobType(name=name, limits=limits, **about))


async def crawl_by_domain(engine: Engine, most: int = 1, **about: Any) -> None:
    """Jobs of type `crawl`, of which so many run at once for each domain."""
    await declare(engine, per_key=Limit(most), limit_key="domain", **about)


async def crawl(engine: Engine, *domains: str, **job: Any) -> list[str]:
    """One job for each domain; their ids."""
    new = [NewJob(type="crawl", payload={"domain": domain}, **job) for domain in domains]
    return [made.id for made in await engine.create_many(new)]


async def limit(engine: Engine, name: str, **limit: Any) -> None:
    await engine.job_limits.set(name, Limit.of(**limit), by=OPERATOR)


async def lift(engine: Engine, name: str) -> None:
    await engine.job_limits.set(name, None, by=OPERATOR)


def domains(leases: list[Lease]) -> list[str]:
    return [lease.payload["domain"] for lease in leases]


async def end(engine: Engine, worker: str, *leases: Lease) -> None:
    for lease in leases:
        await engine.complete(worker, lease.id, lease.token)


async def drain(engine: Engine, worker: str, *, at_once: int = 10, claims: int = 200) -> list[Lease]:
    """Claim and complete until a claim finds nothing."""
    done: list[Lease] = []
    for _ in range(claims):
        leases = await engine.claim(worker, limit=at_once)
        if not leases:
            return done
        await end(engine, worker, *leases)
        done += leases
    raise AssertionError(f"{claims} claims did not empty the queues")


async def used(engine: Engine, name: str) -> int:
    """The units of a limit that are held, as an operator sees them."""
    return next(view.used for view in await engine.job_limits.all() if view.name == name)


class Running(NamedTuple):
    id: str
    buckets: dict[str, int]


RUNNING = """
SELECT j.id, j.type, j.queue, j.tenant, j.limit_key, l.limits
  FROM holdfast_jobs j JOIN holdfast_lanes l ON l.id = j.lane
 WHERE j.state = 'running'"""


async def running_jobs(engine: Engine) -> list[Running]:
    """The running jobs, with what each takes of every limit that is in force."""
    names = {row["name"] for row in await ask(engine, "SELECT name FROM holdfast_limits")}
    return [Running(row["id"], _buckets(row, names)) for row in await ask(engine, RUNNING)]


def _buckets(row: Any, names: set[str]) -> dict[str, int]:
    wanted = {f"{kind}:{row[kind]}": 1 for kind in ("type", "queue", "tenant")} | json.loads(row["limits"])
    taken = {name: units for name, units in wanted.items() if name in names}
    key = f"key:{row['type']} {row['limit_key']}"
    if row["limit_key"] is not None and names & {key, f"key:{row['type']}"}:
        taken[key] = 1
    return taken


async def held_by_jobs(engine: Engine) -> Counter[str]:
    """The units of each bucket, which must be exactly those of the running jobs."""
    running = await running_jobs(engine)
    due = {(bucket, job.id): units for job in running for bucket, units in job.buckets.items()}
    rows = await ask(engine, "SELECT bucket, job_id, units FROM holdfast_limit_units")
    found = {(row["bucket"], row["job_id"]): row["units"] for row in rows}
    assert due.items() <= found.items(), f"running jobs hold no units: {due.items() - found.items()}"
    counted = {bucket for bucket, _ in due}
    over = {key for key in found.keys() - due.keys() if key[0] in counted or key[1] not in {job.id for job in running}}
    assert not over, f"units of jobs that do not run: {over}"
    total: Counter[str] = Counter()
    for (bucket, _), units in due.items():
        total[bucket] += units
    return total


async def turns(engine: Engine) -> list[tuple[str | None, bool]]:
    """The rows of keyed lanes: their bucket, and whether they wait until it has units again."""
    rows = await ask(engine, "SELECT bucket, turn_at IS NULL AS full FROM holdfast_key_lanes ORDER BY bucket, 2")
    return [(row["bucket"], bool(row["full"])) for row in rows]
