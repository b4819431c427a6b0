"""Transitions of jobs with hooks: a batch in one savepoint; if a hook fails, each job in its own savepoint.

So one failing hook affects only its own job, which stays as it was; its transition is tried again later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.hooks.hooks import Hook, error_text, log, warn_of_blocking
from holdfast.engine.hooks.running import running_in
from holdfast.engine.preconditions import extension_missing
from holdfast.errors import HoldfastError, HookFailed, OutcomeUnknown, StoreError
from holdfast.model import Job
from holdfast.model.job import COLUMNS
from holdfast.model.json import readable
from holdfast.store import Row, Tx, q

REFUSED_SECONDS = 60.0  # until a job that a guard refused is tried again
_ASKED_AGAIN = ("accept", "claim", "requeue")  # retried by maintenance and claims; no caller gets the refusal


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


_Item = TypeVar("_Item", bound=_HasId)
_Answer = TypeVar("_Answer")


class Found(NamedTuple):
    """A row that maintenance or an operator is about to change."""

    id: str
    row: Row


class MoveRequest(msgspec.Struct, frozen=True):
    """The argument of a guard: the job before the transition, and the worker's report, if there is one."""

    verb: str
    job: Job
    report: Any = None


class SomeSettled(Exception):
    """The answers to some items of a batch, by their ids. What was written is rolled back, and the others are tried
    again without them; those in `later` after the rest."""

    def __init__(self, answers: Mapping[str, Any], *, later: Collection[str] = ()) -> None:
        super().__init__(*answers)
        self.answers, self.later = answers, later


class HookRaised(Exception):
    """A hook raised; `__cause__` is its exception."""

    def __init__(self, hook: Hook, *, refused: bool) -> None:
        super().__init__(hook.name)
        self.hook, self.refused = hook, refused


async def in_two_passes(
    tx: Tx,
    ctx: EngineContext,
    verb: str,
    items: list[_Item],
    work: Callable[[Which, list[_Item]], Awaitable[Mapping[str, _Answer]]],
) -> dict[str, _Answer | HoldfastError]:
    """Run `work` for the jobs without hooks as one batch, then for those with hooks of this process."""
    answers: dict[str, _Answer | HoldfastError] = {}
    if not ctx.hooks.extensions:
        answers |= await work(ctx.plain, items)
        return answers
    given = ctx.given_with_hooks  # jobs known to have hooks are left out of the first pass
    if plain := [item for item in items if item.id not in given]:
        answers |= await work(ctx.plain, plain)
    if left := [item for item in items if item.id not in answers]:
        answers |= await each_by_itself(tx, ctx, verb, left, partial(work, ctx.mine))
    if freed := [
        item for item in left if item.id in given and item.id not in answers
    ]:  # its type has no hooks any more
        answers |= await work(ctx.plain, freed)
    given.difference_update(answers)
    return answers


class LockWaits:
    """Limits how long one call waits if all hooks wait for the same lock: after two timeouts the other jobs are left
    for the next call."""

    def __init__(self, ctx: EngineContext) -> None:
        self._seconds, self._given_up = ctx.limits.hook_seconds, 0

    def failed_after(self, seconds: float) -> None:
        self._given_up += seconds >= self._seconds

    @property
    def is_over(self) -> bool:
        return self._given_up > 1


async def each_by_itself(
    tx: Tx,
    ctx: EngineContext,
    verb: str,
    items: list[_Item],
    work: Callable[[list[_Item]], Awaitable[Mapping[str, _Answer]]],
    lock_waits: LockWaits | None = None,
) -> dict[str, _Answer | HoldfastError]:
    """The answer of `work` for each job, or a refusal if its guard or effect raised."""
    answers: dict[str, _Answer | HoldfastError] = {}
    lock_waits, began = lock_waits or LockWaits(ctx), ctx.clock.monotonic()
    try:
        async with tx.savepoint():
            answers.update(await work(items))
    except OutcomeUnknown:  # the commit may have happened
        raise
    except tx.deadlock_errors:  # of the transaction, which is tried again
        raise
    except SomeSettled as some:
        answers = {**some.answers}
        left = [item for item in items if item.id not in some.answers]
        for is_later in (False, True):
            if again := [item for item in left if (item.id in some.later) is is_later]:
                answers |= await each_by_itself(tx, ctx, verb, again, work, lock_waits)
    except Exception as failure:
        answers.clear()
        if len(items) > 1:
            for item in items:
                if lock_waits.is_over:
                    answers[item.id] = HookFailed(
                        "hooks on other jobs of this batch took too long; this job was not changed: try again",
                        retry_after_seconds=1.0,
                    )
                else:
                    answers |= await each_by_itself(tx, ctx, verb, [item], work, lock_waits)
        else:
            lock_waits.failed_after(ctx.clock.monotonic() - began)
            answers[items[0].id] = await _settle_failure(tx, ctx, verb, items[0].id, _hook_failure(ctx, failure))
    return answers


def _hook_failure(ctx: EngineContext, failure: Exception) -> HookRaised:
    """Raise a failure that no hook caused. If a hook swallowed the error of a statement, the savepoint cannot end;
    which hook it was is unknown."""
    if isinstance(failure, HookRaised):
        return failure
    if not isinstance(failure, StoreError) or failure.code != "rolled_back":
        raise failure
    failed = HookRaised(Hook(", ".join(ctx.hooks.extensions), "a hook"), refused=False)
    failed.__cause__ = failure
    return failed


async def by_itself(
    tx: Tx, ctx: EngineContext, verb: str, job: Job, work: Callable[[Which], Awaitable[_Answer]]
) -> _Answer:
    """One transition of one job. Raises if a hook refuses or fails."""
    if missing := ctx.hooks.missing(job.needs):
        raise extension_missing(job.id, job.type, missing)
    if not job.needs:
        return await work(ctx.plain)

    async def with_hooks(_: list[Job]) -> dict[str, _Answer]:
        await _ask(tx, ctx, MoveRequest(verb, job), by_itself=True)
        return {job.id: await work(ctx.mine)}

    answer = (await each_by_itself(tx, ctx, verb, [job], with_hooks))[job.id]
    if isinstance(answer, HoldfastError):
        raise answer
    return answer


async def defer_refused(tx: Tx, ctx: EngineContext, answers: Mapping[str, Any]) -> None:
    """Defer jobs whose hook refused or failed, so that they do not block the others."""
    deferred = [
        (job_id, float(answer.fields.get("retry_after_seconds", REFUSED_SECONDS)), answer.code)
        for job_id, answer in answers.items()
        if isinstance(answer, HoldfastError)
    ]
    if deferred:
        await tx.all(ctx.mine(q.defer_jobs), deferred=deferred)


async def moved_rows(
    tx: Tx,
    ctx: EngineContext,
    verb: str,
    rows: list[Row],
    work: Callable[[Which, list[str]], Awaitable[list[Row]]],
    *,
    reports: Mapping[str, Any] | None = None,
    skip_refused: bool = False,
) -> list[Row]:
    """Ask the guards about these jobs, and run `work` for their ids: the rows that changed.

    If there is only one job and a hook refuses it, raise the refusal, unless `skip_refused`.
    """

    async def settle(which: Which, found: list[Found]) -> dict[str, Row]:
        if which == ctx.mine:
            await ask_guards(tx, ctx, verb, reports or {}, [one.row for one in found])
        return {row["id"]: row for row in await work(which, [one.id for one in found])}

    found = [Found(row["id"], row) for row in rows]
    answers = list((await in_two_passes(tx, ctx, verb, found, settle)).values()) if found else []
    if len(rows) == 1 and answers and isinstance(answers[0], HoldfastError) and not skip_refused:
        raise answers[0]
    return [answer for answer in answers if not isinstance(answer, HoldfastError)]


async def _settle_failure(tx: Tx, ctx: EngineContext, verb: str, job_id: str, failure: HookRaised) -> HoldfastError:
    cause, hook = failure.__cause__, failure.hook
    if failure.refused and isinstance(cause, HoldfastError):
        if verb in _ASKED_AGAIN:
            await record_deferrals(tx, ctx, verb, [PutOff(job_id, hook.extension, cause.message, REFUSED_SECONDS)])
        return cause
    text = error_text(cause, ctx.limits.error_max_chars)
    ctx.hook_failures[hook.extension, verb] += 1
    if verb == "create":  # there is no job to retry
        log.warning("extension %s: create failed and was rolled back: %s", hook.name, text, exc_info=cause)
        return HookFailed(
            f"a hook of extension {hook.extension!r} failed; the job was not created: try again later",
            extension=hook.extension,
            retry_after_seconds=1.0,
        )
    row = await tx.one(q.note_hook_failure, job_id=job_id, verb=verb, extension=hook.extension, error=text)
    count = row["failures"] if row else 1
    log.warning(
        "extension %s: %s of job %s failed (%d times) and was rolled back, will retry: %s",
        *(hook.name, verb, job_id, count, text),
        exc_info=cause if count == 1 else None,
        extra={"job_id": job_id, "verb": verb, "extension": hook.extension},
    )
    return HookFailed(
        f"job {job_id}: a hook of extension {hook.extension!r} failed; the job was not changed: try again later",
        job_id=job_id,
        extension=hook.extension,
        retry_after_seconds=float(min(2**count, 300)),
    )


class PutOff(NamedTuple):
    """A transition that a guard has deferred, with the reason."""

    job_id: str
    extension: str
    reason: str
    seconds: float


async def record_deferrals(tx: Tx, ctx: EngineContext, verb: str, moves: list[PutOff]) -> None:
    """Record deferrals: `jobs why` shows them, and maintenance skips the jobs until then."""
    most = ctx.limits.error_max_chars
    rows = [(move.job_id, move.extension, readable(move.reason)[:most], move.seconds) for move in moves]
    await tx.all(q.note_deferred, verb=verb, told=rows)


async def ask_guards(tx: Tx, ctx: EngineContext, verb: str, reports: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Run the guards on a transition of these jobs, which are read under a lock."""
    guarded = [row["id"] for row in rows if ctx.hooks.guards(verb, row["type"])]
    for job in await jobs_of(tx, verb, guarded):
        await _ask(tx, ctx, MoveRequest(verb, job, reports.get(job.id)), by_itself=len(guarded) == 1)


async def _ask(tx: Tx, ctx: EngineContext, request: MoveRequest, *, by_itself: bool) -> None:
    for hook in ctx.hooks.guards(request.verb, request.job.type):
        await run_hook(tx, ctx, hook, hook.function(tx, request), guard=True, by_itself=by_itself)


async def run_effects(tx: Tx, ctx: EngineContext, verb: str, rows: Iterable[Row]) -> None:
    """Run the effects of a transition that was just made."""
    ids = [row["id"] for row in rows if ctx.hooks.effects(verb, row["type"])]
    batches = defaultdict[Hook, list[Job]](list)
    for job in await jobs_of(tx, verb, ids):
        for hook in ctx.hooks.effects(verb, job.type):
            if hook.batch:
                batches[hook].append(job)
            else:
                called = hook.function(tx, verb, job)
                await run_hook(tx, ctx, hook, called, guard=False, by_itself=len(ids) == 1)
    for hook, jobs in batches.items():
        await run_hook(tx, ctx, hook, hook.function(tx, verb, jobs), guard=False, by_itself=len(ids) == 1)


async def run_hook(
    tx: Tx,
    ctx: EngineContext,
    hook: Hook,
    called: Coroutine[Any, Any, Any],
    *,
    guard: bool,
    by_itself: bool,
    answers: tuple[type, ...] = (),
) -> Any:
    """Run one hook. `by_itself`: for a single job; its pending writes are flushed, so that their errors are its own.
    `answers`: the types that it may return, besides None."""
    try:
        with running_in(tx, ctx):
            answer = await tx.call(
                called, ctx.limits.hook_seconds, partial(warn_of_blocking, hook.extension, hook.function)
            )
        if answer is not None and not isinstance(answer, answers):
            names = ", ".join(kind.__name__ for kind in answers) or "nothing"
            raise TypeError(f"it returned {type(answer).__name__}; a hook of this kind returns {names}")
        if by_itself:
            await tx.flush()
        return answer
    except tx.deadlock_errors:
        raise
    except (Exception, SystemExit) as error:  # a hook must not end the process
        refused = guard and isinstance(error, HoldfastError) and not isinstance(error, StoreError)
        raise HookRaised(hook, refused=refused) from error


@contextmanager
def blamed_on(hook: Hook) -> Iterator[None]:
    """An error while applying the answer of a hook is a failure of that hook."""
    try:
        yield
    except StoreError:
        raise
    except (HoldfastError, TypeError, ValueError, AttributeError) as error:
        raise HookRaised(hook, refused=False) from error


async def jobs_of(tx: Tx, verb: str, ids: list[str]) -> list[Job]:
    """Read the jobs for the hooks on this verb, and clear their recorded failures; a new failure rolls that back."""
    rows = await tx.all(q.hooked_jobs, ids=ids, verb=verb) if ids else []
    if failed := [row["id"] for row in rows if row["failed"]]:
        await tx.run(q.clear_hook_failures, ids=failed, verb=verb)
    return [Job.from_row(islice(_values(row), len(COLUMNS))) for row in rows]


def _values(row: Row) -> Iterable[Any]:
    """On a caller's connection a row is a dict."""
    return row.values() if isinstance(row, dict) else row
