"""Workers for a test: they take what is there, and end it as the test says."""

from holdfast.engine import Engine
from holdfast.model import Lease


async def all_ids(engine: Engine) -> list[str]:
    return [job.id for job in (await engine.reads.page()).jobs]


async def take(engine: Engine, limit: int = 1) -> tuple[str, list[Lease]]:
    worker = (await engine.workers.register(name="tester")).id
    leases = await engine.claim(worker, limit=limit)
    assert len(leases) == limit
    return worker, leases


async def finish(engine: Engine, result: object = None) -> str:
    """The id of the job that was done."""
    worker, [lease] = await take(engine)
    await engine.complete(worker, lease.id, lease.token, result)
    return lease.id
