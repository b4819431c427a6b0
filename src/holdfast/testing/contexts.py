"""A fake context to call a handler without a job and without a database; it records what the handler reports."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.model import Lease, Part, PartStatus
from holdfast.model.json import decode, encode
from holdfast.model.reports import Progress, Withdrawal, Withdrawn
from holdfast.observe.extension_metrics import Metrics
from holdfast.store.sqlite import run_to_completion
from holdfast.worker.context import Context, SyncContext
from holdfast.worker.outcomes import Outcome

T = TypeVar("T")
BYTES_MAX = 1 << 20


class RecordedCalls:
    """What a handler has reported so far; for each name the newest counts, as in the database."""

    def __init__(self, parts: dict[str, Part]) -> None:
        self.progress: list[tuple[float | None, str | None]] = []  # percent and step of each report
        self.counters: dict[str, Any] = {}
        self.parts = parts
        self.checkpoints: list[Any] = []
        self.withdrawn: list[str] = []  # the ids of other jobs

    @property
    def percent(self) -> float | None:
        return next((percent for percent, _ in reversed(self.progress) if percent is not None), None)

    @property
    def steps(self) -> dict[str, Any]:
        """By name, the results of `ctx.step`."""
        kept = {name: part.data for name, part in self.parts.items() if part.status is PartStatus.COMPLETED}
        return {name: data["result"] for name, data in kept.items() if isinstance(data, dict) and "result" in data}

    @property
    def finished_parts(self) -> list[str]:
        return [name for name, part in self.parts.items() if part.status is PartStatus.COMPLETED]


class _Recorder:
    """Replaces the worker: validates reports as JSON and records them."""

    def __init__(self, recorded: RecordedCalls) -> None:
        self._recorded = recorded

    async def progress(self, report: Progress) -> None:
        said = self._recorded
        if report.percent is not None or report.step is not None:
            said.progress.append((report.percent, report.step))
        said.counters |= _as_json(report.counters or {}, "counters")
        if report.checkpoint is not None:
            said.checkpoints.append(_as_json(report.checkpoint, "checkpoint"))
        said.parts.update({part.name: part for part in cast("list[Part]", report.parts)})

    async def parts(self, job_id: str) -> list[Part]:
        return list(self._recorded.parts.values())

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        self._recorded.withdrawn.append(asked.target)
        return Withdrawn(asked.target, State.CANCELED)

    async def recorded(self, outcome: Outcome) -> None:
        """Already stored in the database."""


class FakeContext(Context):
    """For an async handler: `await send_email(fake_context(), to="a@example.com")`."""

    def __init__(self, lease: Lease, recorded: RecordedCalls, state: Any) -> None:
        super().__init__(lease, _Recorder(recorded), state)
        self.recorded = recorded

    def cancel(self) -> None:
        """Request the cancellation of the job, as the handler sees it."""
        self.cancel_requested = True


class FakeSyncContext(SyncContext):
    """For a plain handler: `send_email(fake_context(sync=True), to="a@example.com")`."""

    def __init__(self, context: FakeContext) -> None:
        super().__init__(context, None)  # type: ignore[arg-type]  # no event loop is used
        self.recorded, self.cancel = context.recorded, context.cancel

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return run_to_completion(work)


class FakeFacts(TypedDict, total=False):
    """What `fake_context` takes, beside `sync`."""

    attempt: int
    max_attempts: int
    checkpoint: Any
    steps: Mapping[str, Any] | None
    finished_parts: Iterable[str]
    tags: Iterable[str]
    tenant: str
    queue: str
    job_type: str
    state: Any
    metrics: Metrics | None


@overload
def fake_context(*, sync: Literal[False] = False, **facts: Unpack[FakeFacts]) -> FakeContext: ...


@overload
def fake_context(*, sync: Literal[True], **facts: Unpack[FakeFacts]) -> FakeSyncContext: ...


def fake_context(
    *,
    sync: bool = False,
    attempt: int = 1,
    max_attempts: int = 5,
    checkpoint: Any = None,
    steps: Mapping[str, Any] | None = None,
    finished_parts: Iterable[str] = (),
    tags: Iterable[str] = (),
    tenant: str = "default",
    queue: str = "default",
    job_type: str = "test",
    state: Any = None,
    metrics: Metrics | None = None,
) -> FakeContext | FakeSyncContext:
    """A context like that of a worker. `checkpoint`, `steps` (results by name) and `finished_parts` are what
    earlier attempts have left behind; `state` is what the app's lifespan would have yielded; `metrics` are those of the
    handler's extension."""
    parts = {name: Part(name=name, status=PartStatus.COMPLETED, percent=100) for name in finished_parts}
    for name, result in (steps or {}).items():
        parts[name] = Part(name=name, status=PartStatus.COMPLETED, percent=100, data={"result": result})
    now, ids = Clock().now(), Ids()
    lease = Lease(
        id=ids.job_ids(now, 1)[0],
        token=ids.token(),
        tenant=tenant,
        type=job_type,
        queue=queue,
        lifecycle="default",
        priority=0,
        epoch=attempt + bool(parts),  # a first execution does not read parts
        attempt=attempt,
        max_attempts=max_attempts,
        lost=0,
        expires_at=now + timedelta(seconds=30),
        claimed_at=now,
        created_at=now,
        run_at=now,
        payload={},
        checkpoint=checkpoint,
        tags=list(tags),
        trace=None,
        policy=0,
    )
    context = FakeContext(lease, RecordedCalls(parts), state)
    if metrics is not None:
        context.metrics = metrics
    return FakeSyncContext(context) if sync else context


def _as_json(value: Any, what: str) -> Any:
    """After the round trip through JSON."""
    return decode(encode(value, what, max_bytes=BYTES_MAX))
