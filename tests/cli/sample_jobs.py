"""Jobs in given states: claimed, half done, succeeded, dead."""

from holdfast.engine import Engine, Progress
from holdfast.model import Lease, NewJob, Part, PartStatus


async def claimed(engine: Engine, **job: object) -> tuple[str, Lease]:
    """A new job, claimed by the first registered worker."""
    workers = await engine.workers.all() or [await engine.workers.register(name="busy-bee", capabilities={"gpu": True})]
    worker = workers[0]
    created = await engine.create(NewJob(**{"type": "render", **job}))  # type: ignore[arg-type]
    [lease] = await engine.claim(worker.id, types=[str(job.get("type", "render"))], instance="process-1")
    assert lease.id == created.id
    return worker.id, lease


async def half_done(engine: Engine, **job: object) -> Lease:
    """A running job that has reported progress, parts and a checkpoint."""
    worker, lease = await claimed(engine, payload={"film": "a.mov"}, tags=["urgent"], **job)
    parts = [
        Part(name="720p", status=PartStatus.COMPLETED, percent=100),
        Part(name="480p", status=PartStatus.IN_PROGRESS, done=3, total=9),
    ]
    report = Progress(
        id=lease.id,
        token=lease.token,
        step="encode",
        percent=50,
        counters={"frames": 240},
        parts=parts,
        checkpoint={"at": 3},
    )
    await engine.progress(worker, report)
    return lease


async def dead(engine: Engine, code: str = "E_BROKEN", message: str = "it broke", **job: object) -> str:
    worker, lease = await claimed(engine, **job)
    await engine.fail(worker, lease.id, lease.token, code, message, permanent=True)
    return lease.id


async def succeeded(engine: Engine, **job: object) -> str:
    worker, lease = await claimed(engine, **job)
    await engine.complete(worker, lease.id, lease.token, {"frames": 240})
    return lease.id
