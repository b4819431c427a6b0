"""The worker: claims ahead of need, runs handlers in its slots, and reports in batches. The keeper renews beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, KeysView, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LeaseLost, StoreError, WorkerDisabled
from holdfast.ids import Ids
from holdfast.model import Liveness, Part
from holdfast.model.reports import RAISED, Freed, Progress, Withdrawal, Withdrawn
from holdfast.outage_log import outage
from holdfast.worker.connectivity import MonitoredSource
from holdfast.worker.context import Context
from holdfast.worker.execution import Ending, Execution
from holdfast.worker.handler import Handler, Isolation, MiddlewareStack, invoke
from holdfast.worker.heartbeat.lease_table import LeaseTable, TableHeader
from holdfast.worker.loop_watch import current
from holdfast.worker.outcomes import Abandoned, Failed, Outcome, Recorded, Released, how
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.processes.signal_mask import unblock_signals
from holdfast.worker.progress_reporter import ProgressReporter
from holdfast.worker.reporter import Reporter
from holdfast.worker.source import Claims, Source
from holdfast.worker.transactions import Database

if TYPE_CHECKING:
    from holdfast.observe.traces import Traces
    from holdfast.worker.attempt_log import AttemptLog
    from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
    from holdfast.worker.metrics import WorkerCounters
    from holdfast.worker.processes.process_pool import ChildExecution, ProcessPool

TICK_SECONDS = 0.2
LATE_SECONDS = 0.5  # a tick that comes so late
INTERRUPT_SECONDS = 1.0  # for an interrupt to take effect
BUFFERED_SECONDS_MAX = 1.0  # a job that waits longer than this in here is given back: others may start it sooner
STOOD_STILL_SECONDS = 5 * TICK_SECONDS
FENCE = 0.8  # of a lease not renewed: the worker itself stops what it runs
WAIT_SECONDS = 5.0
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 2.0
LAST_WORDS_SECONDS = 5.0  # for reports, when everything has ended
CLAIM_MAX = 1000
CLAIM, RENEW = "claim jobs", "renew leases"
ABANDONED_MAX = 10_000
UNREPORTED_MAX = 2000  # claiming waits while more than this has ended and could not be reported yet

log = logging.getLogger("holdfast.worker")


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """How much at once, from where, and how patiently."""

    concurrency: int = 10
    queues: list[str] | None = None
    stop_grace_seconds: float = 25
    kill_grace_seconds: float = 5  # after being told to end, before a child is killed or a thread given up
    timeout_grace_seconds: float = 0  # the same, for an attempt whose time is up
    replaceable: bool = False  # somebody starts another process when this one ends
    kept: bool = True  # a keeper renews the leases; without one nobody does


class Worker:
    def __init__(
        self,
        source: Source,
        handlers: Mapping[str, Handler],
        *,
        plan: WorkerConfig | None = None,
        around: MiddlewareStack | None = None,
        state: Any = None,
        board: LeaseTable | None = None,
        children: ProcessPool | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        figures: WorkerCounters | None = None,
        traces: Traces | None = None,
        attempts: AttemptLog | None = None,
        database: Database | None = None,
    ) -> None:
        self._handlers, self._database = handlers, database
        self._figures, self._traces = figures, traces
        self.plan = plan or WorkerConfig()
        self._around, self._state = around or MiddlewareStack(), state
        self._board = board or LeaseTable.create()
        self._children = children
        self._clock, self._ids = clock or Clock(), ids or Ids()
        self._source = MonitoredSource(source, self._clock)
        self._types = sorted(handlers)
        self._childless_types = [
            name for name in self._types if children is None or handlers[name].isolation is not Isolation.PROCESS
        ]
        self._in_children: set[Execution] = set()  # what has a child process, or is about to have one
        self._child_free = asyncio.Event()  # one became free since the last claim
        self._buffer: deque[Execution] = deque()
        self._runs: dict[
            str, Execution
        ] = {}  # by token: everything this worker holds, waiting, running or to be reported
        self._busy = 0
        self.left: list[Execution] = []  # what still ran when the worker had stopped; its leases are held
        self._stuck: set[Execution] = set()  # handlers that would not end: their threads and tasks are still there
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = asyncio.Event()
        self._enabled, self._unrenewed = True, False  # as the keeper said last
        self._unheard = False  # a claim failed that may have claimed something
        self._abandoned: deque[str] = deque(maxlen=ABANDONED_MAX)  # tokens that may still be current, and were given up
        self._others = True  # other workers may be there
        self._looked_at = self._calm_since = self._started_at = self._clock.monotonic()
        self._pace = Prefetch(self._free())
        self._threads = ThreadPoolExecutor(
            self.plan.concurrency, thread_name_prefix="holdfast-job", initializer=unblock_signals
        )
        self._blank = copy_context()  # every handler begins with this: nothing leaks from one job into the next
        self._outbox = Reporter(
            self._source,
            self._clock,
            self._ids,
            busy=lambda: self._busy > 0,
            settled=self._settled,
            figures=figures,
            attempts=attempts,
        )
        self._reporting = ProgressReporter(self._source, self._clock, self._ids, fence=self._fence)

    # -- running ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop` is called, then finish what runs within the grace and give the rest back."""
        beside = [asyncio.create_task(work) for work in (self._outbox.run(), self._tick())]
        claiming = asyncio.create_task(self._claim_until_stopped())
        try:
            await _first_failure([claiming, *beside], until=self._stopping)
            await self._wind_down(claiming)
        finally:
            for task in (claiming, *beside):
                task.cancel()
            await asyncio.gather(claiming, *beside, return_exceptions=True)
            if self._children is not None:
                await self._children.close()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """No new claim from now on."""
        self._stopping.set()
        self._room.set()
        self._board.stop()
        for run in self.running():
            run.warn()

    @property
    def held(self) -> int:
        return len(self._runs)

    @property
    def stuck(self) -> int:
        """Slots whose handlers would not end."""
        return len(self._stuck)

    @property
    def taken(self) -> int:
        """Slots in which something runs, or will not end."""
        return self._busy + self.stuck

    @property
    def standing(self) -> TableHeader:
        """As its keeper sees it."""
        return self._board.header()

    async def _wind_down(self, claiming: asyncio.Task[None]) -> None:
        self._give_back_waiting()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.plan.stop_grace_seconds):
                await claiming  # what it may just have claimed is given back by itself
                await self._idle.wait()
                await self._outbox.empty()
        self._interrupt_all()
        await self._clock.within(self._idle, self.plan.kill_grace_seconds)
        for run in self.running():
            self._leave(run)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._outbox.empty()

    @property
    def waiting(self) -> KeysView[Execution]:
        """Those whose handlers wait for the database to take a report."""
        return self._reporting.waiting

    def running(self) -> list[Execution]:
        return [run for run in self._runs.values() if run.started and not run.finished]

    def _interrupt_all(self) -> None:
        for run in self.running():
            run.end(Ending.STOPPED, self._clock.monotonic())
            if run.interrupt is None:
                self._leave(run)  # a thread cannot be interrupted, and the process is about to end

    def _leave(self, run: Execution) -> None:
        """It runs on while the worker stops. Given back now it would run twice at the same time: see `hand_over`."""
        log.warning("job %s (%s) still runs although the worker stops", run.lease.id, run.lease.type)
        run.finished = True
        self._busy -= 1
        self._stuck.add(run)
        self.left.append(run)
        self._is_idle()

    async def hand_over(self, delay_seconds: float) -> None:
        """The last act of a process: what still runs here is given back, to be claimed when the process is gone."""
        if self.left:
            leases = [run.lease for run in self.left]
            await self._source.release([Freed(held.id, held.token, delay_seconds, snoozed=False) for held in leases])

    # -- claiming ---------------------------------------------------------------------------------------------

    async def _claim_until_stopped(self) -> None:
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while not self._stopping.is_set():
            try:
                await self._take_unheard()
                self._room.clear()
                self._child_free.clear()
                wanted, types = self._wanted(), self._startable_types()
                if not wanted:
                    await self._room.wait()
                    continue
                if not await self._claim(wanted, types):
                    await self._until_hint(types)
                backoff.reset()
            except WorkerDisabled as error:
                log.warning("%s", error)
                await self._until_enabled()
            except HoldfastError as error:
                if error.code == "worker_not_found":  # forgotten while it was away: a new process registers anew
                    raise
                outage.failed(CLAIM, error)
                self._unheard = True  # it may have claimed something before it failed
                await self._clock.within(self._stopping, backoff.next())
        with contextlib.suppress(StoreError):
            await self._take_unheard()

    async def _claim(self, wanted: int, types: list[str]) -> int:
        """How many came. Of types that may need a child process, no more than there are children for; when so many
        came, the other slots are for types that need none."""
        children = self._unclaimed_children()
        if types == self._childless_types or not self._childless_types or wanted <= children:
            return await self._claim_of(types, wanted)
        came = await self._claim_of(types, children)
        if came == children and (wanted := self._wanted()):
            came += await self._claim_of(self._childless_types, wanted)
        return came

    async def _claim_of(self, types: list[str], wanted: int) -> int:
        claimed = await self._source.claim(wanted, queues=self.plan.queues, types=types)
        outage.succeeded(CLAIM)
        self._board.polled()
        self._take(claimed)
        return len(claimed)

    async def _until_hint(self, types: list[str]) -> None:
        """Or until the worker stops, or more types than these can start."""
        waiting = asyncio.ensure_future(self._source.wait(WAIT_SECONDS, self.plan.queues, types))
        others = [asyncio.ensure_future(self._stopping.wait())]
        if types != self._types:
            others.append(asyncio.ensure_future(self._child_free.wait()))
        try:
            while not any(other.done() for other in others):
                await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    self._board.polled()
                    if waiting.result() or not self._enabled:
                        return
                    waiting = asyncio.ensure_future(self._source.wait(WAIT_SECONDS, self.plan.queues, types))
        finally:
            for task in (waiting, *others):
                task.cancel()

    async def _until_enabled(self) -> None:
        """It may finish what it holds; that it claims nothing is no fault of its own."""
        self._enabled = False
        while not self._enabled and not await self._clock.within(self._stopping, TICK_SECONDS):
            self._board.polled()

    def _wanted(self) -> int:
        """Free slots, and as many more as will start within a moment: so that the database sees batches."""
        free, ahead = self._free(), self._pace.ahead() - len(self._buffer) + self._waiting_for_child()
        unreported = len(self._runs) - self._busy - len(self._buffer)
        if self._stopping.is_set() or unreported > UNREPORTED_MAX:
            return 0
        if free <= 0 and ahead * 2 < self._pace.ahead():  # not for every job that starts: in batches
            return 0
        return max(0, min(free + ahead, self._board.room(), CLAIM_MAX))

    def _take(self, claimed: Claims) -> None:
        now = self._clock.monotonic()
        fragile: list[Execution] = []
        surplus: list[Execution] = []
        childless: list[Execution] = []
        alone: list[Execution] = []  # and no child process is free
        for lease, policy in claimed:
            handler = self._handlers[lease.type]
            place = self._board.put(lease, policy.lease_seconds, beat_seconds=policy.heartbeat_seconds)
            run = Execution(lease, policy, handler, now=now, place=place)
            self._runs[lease.token] = run
            (fragile if run.fragile else self._buffer).append(run)
        for run in fragile:
            if self._free() <= 0 or self._stopping.is_set():
                surplus.append(run)
            elif self._can_start(run):
                self._start(run)
            elif run.handler.isolation is Isolation.PROCESS:
                childless.append(run)
            else:
                alone.append(run)
        self._pace.claimed(len(claimed), back=len(surplus))
        self._give_back(surplus + childless)
        self._give_back(
            alone, delay_seconds=BUFFERED_SECONDS_MAX
        )  # their types are claimed: they would be back at once
        if self._stopping.is_set():
            self._give_back_waiting()
        self._fill()

    def _free(self) -> int:
        """Slots. Where every job needs a child process, no more than there are children free."""
        slots = self.plan.concurrency - self.stuck - self._busy
        return slots if self._childless_types or self._children is None else min(slots, self._free_children())

    def _free_children(self) -> int:
        return 0 if self._children is None else self._children.most - len(self._in_children)

    def _unclaimed_children(self) -> int:
        """Free, and no job in the buffer will need them."""
        return max(0, self._free_children() - sum(map(self._needs_child, self._buffer)))

    def _needs_child(self, run: Execution) -> bool:
        return self._children is not None and (run.handler.isolation is Isolation.PROCESS or run.alone)

    def _can_start(self, run: Execution) -> bool:
        return not self._needs_child(run) or self._free_children() > 0

    def _startable_types(self) -> list[str]:
        """While no child process is free: only those that need none, if there are any."""
        return self._types if self._unclaimed_children() > 0 else self._childless_types or self._types

    def _waiting_for_child(self) -> int:
        """Those in the buffer that keep no other job from being claimed: their types are not claimed meanwhile."""
        if not self._childless_types or self._free_children() > 0:
            return 0
        return sum(map(self._needs_child, self._buffer))

    def _fill(self) -> None:
        """Not what may have been lost while it waited: the keeper finds out, and until then it goes on waiting. Nor
        what needs a child process while none is free: the database would count its time from the claim."""
        now = self._clock.monotonic()
        passed_over: list[Execution] = []
        while self._buffer and self._free() > 0:
            run = self._buffer.popleft()
            if self._is_unkept(run, now) or not self._can_start(run):
                passed_over.append(run)
            else:
                self._start(run)
        self._buffer.extendleft(reversed(passed_over))
        if self._unclaimed_children() > 0:
            self._child_free.set()
        self._is_idle()

    def _give_back_waiting(self) -> None:
        waiting = list(self._buffer)
        self._buffer.clear()
        self._give_back(waiting)

    def _give_back(self, runs: list[Execution], *, delay_seconds: float = 0) -> None:
        for run in runs:
            run.finished = True
            self._outbox.put(run, Released(delay_seconds))
        self._is_idle()

    async def _take_unheard(self) -> None:
        """The answer to a claim was lost: what it may have claimed is as good as what it would have brought."""
        if self._unheard:
            self._take(await self._source.unheard({*self._runs, *self._abandoned}))
            self._unheard = False

    # -- executing --------------------------------------------------------------------------------------------

    def _start(self, run: Execution) -> None:
        run.started = True
        self._started_at = self._clock.monotonic()
        self._busy += 1
        if self._needs_child(run):
            self._in_children.add(run)
        self._idle.clear()
        run.context = Context(run.lease, _DirectBackend(self, run), self._state, self._database)
        run.task = asyncio.get_running_loop().create_task(self._execute(run), context=self._blank.copy())

    def _begins(self, run: Execution, interrupt: Callable[[], None] | None) -> None:
        """The handler can begin: from now on its clocks run. The time a child process takes to start is not its own."""
        run.begun_at = run.progress_at = self._clock.monotonic()
        run.interrupt = interrupt
        self._show_deadline(run)
        if self._figures is not None:
            self._figures.begins(run)
        if run.ending is not None and interrupt is not None:  # it was told to end before it could hear
            interrupt()

    def _show_deadline(self, run: Execution) -> None:
        """To the watchdog, while the place on the board is this run's."""
        if run.begun_at is not None and not run.finished and (allowed := run.seconds_allowed) is not None:
            self._board.deadline(run.place, run.begun_at + allowed)

    async def _execute(self, run: Execution) -> None:
        assert run.context is not None  # noqa: S101
        current.set(run)
        said: Outcome | None = None
        if self._traces is not None:
            run.span = self._traces.begun(run.lease)
        try:
            if run.handler.isolation is Isolation.PROCESS or (run.alone and self._children is not None):
                said = await self._in_child(run)
            else:
                self._begins(run, run.cancel_task if run.handler.is_async else None)
                said = await invoke(
                    run.handler,
                    run.context,
                    run.lease.payload,
                    self._around,
                    self._threads,
                    lambda: run.returns(self._clock.monotonic()),
                )
        except asyncio.CancelledError:
            if run.ending is None and self._stopping.is_set():
                run.ending = Ending.STOPPED
        except Exception as error:
            log.exception("job %s: the runtime failed", run.lease.id)
            said = Failed("E_RUNTIME", str(error), {RAISED: type(error).__name__})
        self._in_children.discard(run)
        self._ended(run, said)

    async def _in_child(self, run: Execution) -> Outcome:
        if self._children is None:
            return Failed("E_NO_CHILDREN", "this worker cannot start child processes", permanent=True)

        def started(execution: ChildExecution) -> None:
            if run.finished:  # given up on while the child was being started: its place belongs to another by now
                execution.kill()
                return
            self._board.executor(run.place, execution.pid)
            run.execution = execution
            self._begins(run, lambda: self._end_child(run, execution))
            if self._stopping.is_set():
                run.warn()

        run.interrupt = run.cancel_task  # kills the child that is being started
        lease = run.lease if self._traces is None else self._traces.carrying(run.lease, run.span)
        said = await self._children.run(
            lease, run.handler, _DirectBackend(self, run), alone=run.alone, on_started=started
        )
        if run.execution is not None and run.execution.seconds is not None and run.begun_at is not None:
            run.returns(run.begun_at + run.execution.seconds)
        if run.alone and isinstance(said, Failed) and said.code == "E_CRASHED" and run.ending is None:
            return Failed("poison", f"alone in its process, it killed it again: {said.message}", said.context, True)
        return said

    def _end_child(self, run: Execution, execution: ChildExecution) -> None:
        patience = self._patience(run)
        if run.ending is Ending.STOPPED or patience <= 0:  # it was warned when the worker was told to stop
            execution.kill()
            return
        if run.ending is Ending.LOST:
            execution.lose()
        else:
            execution.cancel()
        asyncio.get_running_loop().call_later(patience, execution.kill)

    def _patience(self, run: Execution) -> float:
        """How long an execution that was told to end may take: less than the engine itself waits after a cancel."""
        if run.ending is Ending.CANCELED:
            return 0.8 * run.policy.cancel_grace_seconds
        if run.ending is Ending.TIMED_OUT:
            return self.plan.timeout_grace_seconds
        return self.plan.kill_grace_seconds

    def _ended(self, run: Execution, said: Outcome | None) -> None:
        if run.finished:  # it was given up on, and now it has ended after all
            self._stuck.discard(run)
            if run in self.left and not self._outbox.closed:
                self.left.remove(run)
                run.ends(self._clock.monotonic())
                self._say(run, run.outcome(said))
            self._room.set()
            self._fill()
            return
        run.finished = True
        self._busy -= 1
        run.ends(self._clock.monotonic())
        if run.ran is not None:
            self._pace.ended(run.ran)
        self._say(run, run.outcome(said))
        self._fill()
        if not self._room.is_set() and self._wanted():
            self._room.set()

    def _give_up(self, run: Execution) -> None:
        """It was told to end and did not. Say so in its place; its slot is not free until it has really ended."""
        log.warning(
            "job %s (%s) was told to end and still runs%s; its result will be discarded, and its slot stays occupied "
            "until it ends",
            *(run.lease.id, run.lease.type, "" if run.interrupt else " in a thread, which cannot be stopped"),
        )
        run.finished = True
        self._busy -= 1
        self._stuck.add(run)
        run.ends(self._clock.monotonic())
        if run.context is not None:
            run.context.lost = True  # what it reports from now on is refused
        self._say(run, run.outcome(None))
        self._is_idle()

    def _make_way(self, now: float) -> None:
        """When most slots have been occupied for long by handlers that were told to end, a new process is better."""
        stuck = sum(now - run.told > self.plan.kill_grace_seconds for run in self._stuck)
        if self.plan.replaceable and stuck * 2 > self.plan.concurrency and not self._stopping.is_set():
            log.error(
                "%d of %d slots are occupied by handlers that do not end: this process ends, another takes its place",
                *(stuck, self.plan.concurrency),
            )
            self.stop()

    def _say(self, run: Execution, outcome: Outcome) -> None:
        if self._traces is not None and run.span is not None:
            self._traces.ended(run.span, *how(outcome))
        self._outbox.put(run, outcome)

    def _settled(self, run: Execution) -> None:
        del self._runs[run.lease.token]
        self._board.clear(run.place)
        self._room.set()

    def _is_idle(self) -> None:
        if not self._busy and not self._buffer:
            self._idle.set()
        else:
            self._idle.clear()

    # -- clocks, and what the keeper says ---------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            now = self._clock.monotonic()
            self._board.tick()
            self._board.show(Liveness.BUSY if self._busy else Liveness.IDLE, self.plan.concurrency)
            if self._free() <= 0:
                self._board.polled()  # no slot, no need to claim
            for run in list(self._runs.values()):
                if not run.finished:
                    self._check(run, now)
            self._give_back_stale(now)
            self._make_way(now)
            await self._clock.sleep(TICK_SECONDS)
            if self._clock.monotonic() - now > LATE_SECONDS:
                self._board.tick()
                await self._clock.sleep(TICK_SECONDS)  # the loop was held up: first hear what has ended meanwhile

    def _check(self, run: Execution, now: float) -> None:
        if not run.started:
            return
        if self._is_unkept(run, now) and run.ending is not Ending.LOST:
            log.error("job %s: the lease was not renewed in time; stopping it", run.lease.id)
            self._lose(run)
        elif run in self.waiting:
            pass  # for the database: its clocks stand still
        elif run.begun_at is not None and run.ending is None and (overrun := run.overrun(now)) is not None:
            run.end(Ending.TIMED_OUT, now, overrun)
        if run.ending is not None and not run.finished and now - run.told >= self._time_to_end(run):
            self._give_up(run)

    def _time_to_end(self, run: Execution) -> float:
        return self._patience(run) + (INTERRUPT_SECONDS if run.interrupt is not None else 0)

    def _is_unkept(self, run: Execution, now: float) -> bool:
        return (
            self.plan.kept
            and run.recorded is None
            and now - self._board.kept_since(run.place) > FENCE * run.policy.lease_seconds
        )

    def _fence(self, run: Execution) -> float | None:
        """Where a keeper renews, the board says when the lease may be over; elsewhere nobody does, and it is over when
        its time is."""
        return None if self.plan.kept else FENCE * run.policy.lease_seconds

    def _give_back_stale(self, now: float) -> None:
        """What has waited for long behind others, and will not start in a moment: another worker may be sooner.

        What waits for a child process goes back even if there is no other worker: the database counts its time.

        While the database was away, or this process stood still, nobody could have: the wait begins anew.
        """
        passed, self._looked_at = now - self._looked_at, now
        if self._source.away or self._unrenewed or self.waiting or passed > STOOD_STILL_SECONDS:
            self._calm_since = now
        if now - self._calm_since <= BUFFERED_SECONDS_MAX:
            return
        moving = now - self._started_at <= BUFFERED_SECONDS_MAX
        stale = {
            run
            for place, run in enumerate(self._buffer)
            if now - run.claimed_at > BUFFERED_SECONDS_MAX
            and (not self._can_start(run) or (self._others and not (moving and place < self._pace.ahead())))
        }
        if stale:
            self._buffer = deque(run for run in self._buffer if run not in stale)
            if behind := sum(map(self._can_start, stale)) if self._childless_types else len(stale):
                self._pace.claimed(behind, back=behind)
            self._give_back(list(stale))

    def on_heartbeat(self, result: HeartbeatResult) -> None:
        """What the keeper learned with its last beat."""
        if result.failed:
            outage.failed(RENEW, result.failed)
            self._unrenewed = True
            return
        outage.succeeded(RENEW)
        self._enabled, self._unrenewed, self._others = result.enabled, False, result.fleet.live > 1
        for held in result.lost:
            if (run := self._runs.get(held.token)) is not None:
                self._lose(run)
        for held in result.cancel:
            if (run := self._runs.get(held.token)) is not None and not run.finished:
                self._cancel(run)
        self._fill()  # what waited for its lease to be renewed
        self._room.set()

    def _cancel(self, run: Execution) -> None:
        if run.started:
            run.end(Ending.CANCELED, self._clock.monotonic())
        else:
            self._buffer.remove(run)
            self._give_back([run])

    def _lose(self, run: Execution) -> None:
        if run.finished or run.recorded is not None:
            return  # its report will hear of it, or there is none to come
        self._abandoned.append(run.lease.token)
        if run.started:
            run.end(Ending.LOST, self._clock.monotonic())
        else:  # nothing was done, and others have it
            self._buffer.remove(run)
            run.finished = True
            self._outbox.put(run, Abandoned())
            self._is_idle()

    async def report(self, run: Execution, report: Progress) -> None:
        run.progress_at = self._clock.monotonic()
        try:
            advanced = await self._reporting.progress(run, report)
        except LeaseLost:
            if self._figures is not None:
                self._figures.refused()
            self._lose(run)
            raise
        finally:
            self._show_deadline(run)
        if advanced.cancel_requested:
            self._cancel(run)

    async def parts(self, run: Execution) -> list[Part]:
        try:
            return await self._reporting.parts(run)
        except LeaseLost:
            self._lose(run)
            raise

    async def withdraw(self, run: Execution, asked: Withdrawal) -> Withdrawn:
        try:
            return await self._reporting.withdraw(run, asked)
        except LeaseLost:
            self._lose(run)
            raise


class _DirectBackend:
    """A context's way to the runtime. Reports of one handler go one after the other: the newest is stored last."""

    __slots__ = ("_run", "_turn", "_worker")

    def __init__(self, worker: Worker, run: Execution) -> None:
        self._worker, self._run = worker, run
        self._turn = asyncio.Lock()

    async def progress(self, report: Progress) -> None:
        async with self._turn:
            await self._worker.report(self._run, report)

    async def parts(self, job_id: str) -> list[Part]:
        return await self._worker.parts(self._run)

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        return await self._worker.withdraw(self._run, asked)

    async def recorded(self, outcome: Recorded) -> None:
        self._run.recorded = outcome


async def _first_failure(tasks: list[asyncio.Task[None]], *, until: asyncio.Event) -> None:
    """Wait for the event; a task that ends before it has failed, and nothing here works without it."""
    waiting = asyncio.create_task(until.wait())
    try:
        await asyncio.wait({*tasks, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        waiting.cancel()
