"""Renders a snapshot: a header and four tables, five if there are limits, fitted to the terminal's size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group
from rich.text import Text

from holdfast.cli.jobs.views import STYLES as STATE_STYLES
from holdfast.cli.output import Cell, Styled, age_text, bar, clean, count, span_text, time_text
from holdfast.cli.table import header, line
from holdfast.cli.table_layout import fitted_lines
from holdfast.cli.top.snapshot import EndedRow, LimitRow, QueueRow, RunningRow, TopSnapshot, WorkerRow
from holdfast.cli.truncate import cut_end, cut_middle
from holdfast.cli.workers import STYLES
from holdfast.engine.reads.live_view import COUNT_MAX
from holdfast.lifecycle import State
from holdfast.model.limits import is_for_each_key, rate_text
from holdfast.redaction import printable

WORKER_STYLES = STYLES | {"silent": "red"}
BAR_WIDTH = 10
STALE_SECONDS = 5.0
TITLE_LINES = 2  # of a table: an empty line and its titles


def _right(title: str, short: str | None = None) -> Styled:
    return Styled(title, short=short, right=True)


QUEUE_TITLES: list[Cell] = [
    *("queue", _right("waiting", "wait"), _right("running", "run"), _right("retrying", "retry")),
    *(_right("delayed", "delay"), _right("dead 1 h", "dead"), _right("oldest"), _right("in/s"), _right("out/s")),
]
LIMIT_TITLES: list[Cell] = [
    *("limit", _right("in use"), _right("at once"), _right("full keys", "full"), _right("rate")),
]
WORKER_TITLES: list[Cell] = [
    *("worker", "name", "status", _right("busy slots", "slots"), _right("leases")),
    Styled("last heartbeat", short="heartbeat"),
]
RUNNING_TITLES: list[Cell] = [
    *("running", "type", _right("attempt", "try"), _right("since"), Styled("progress", short="done")),
    *(_right("ETA"), "step"),
]
ENDED_TITLES: list[Cell] = [
    *("ended", "type", _right("attempt", "try"), _right("ago"), _right("took"), "outcome", "code"),
]


@dataclass(frozen=True)
class Panel:
    """`droppable`: titles of columns that a narrow terminal leaves out."""

    titles: Sequence[Cell]
    rows: list[list[Cell]]
    nothing: str
    droppable: Sequence[str] = ()

    def lines(self, most: int, width: int) -> Iterator[Text]:
        """The titles and at most so many rows; the last line says how many more there are."""
        shown = self.rows if len(self.rows) <= most else self.rows[: max(0, most - 1)]
        titles = [clean(title) for title in self.titles]
        columns = fitted_lines([[clean(cell) for cell in row] for row in shown], titles, width, self.droppable)
        yield header(columns)
        for row in zip(*(column.cells for column in columns), strict=True):
            yield line(columns, row)
        if len(shown) < max(1, len(self.rows)):
            left = f"and {len(self.rows) - len(shown):,} more" if self.rows else self.nothing
            yield Text(left, "dim")


def render(snapshot: TopSnapshot, *, width: int, height: int | None = None, trouble: str = "", foot: str = "") -> Group:
    """Everything, or as much as fits into `height` lines."""
    head = [*_head(snapshot, width), *([Text(cut_end(printable(trouble), width), "bold red")] if trouble else [])]
    panels = _panels(snapshot, snapshot.at)
    room = None if height is None else height - len(head) - bool(foot)
    if room is None or room >= (TITLE_LINES + 1) * (len(panels) + 1):  # a small terminal shows none
        panels[1:1] = _limits(snapshot)
    wanted = [max(1, len(panel.rows)) for panel in panels]
    if room is not None:
        wanted = shared(room - TITLE_LINES * len(panels), wanted)
    tables = [part for panel, rows in zip(panels, wanted, strict=True) for part in (Text(), *panel.lines(rows, width))]
    return Group(*head, *tables, *([Text(foot, "dim")] if foot else []))


def shared(lines: int, wanted: list[int]) -> list[int]:
    """Distribute lines in turn to the tables that need more; each gets at least one."""
    got = [1] * len(wanted)
    while sum(got) < lines and got != wanted:
        for place, most in enumerate(wanted):
            if got[place] < most and sum(got) < lines:
                got[place] += 1
    return got


def _head(snapshot: TopSnapshot, width: int) -> Iterator[Text]:
    clock = f"  {time_text(snapshot.at)} UTC"
    name = cut_middle(f"holdfast top  {printable(snapshot.database)}", max(1, width - len(clock)))
    yield Text(f"{name}{clock}", "bold")
    total = snapshot.totals
    alive = [worker for worker in snapshot.workers if worker.alive]
    counts = [
        f"{total.waiting:,} waiting",
        f"{total.running:,} running",
        f"{_bounded(total.retrying)} retrying",
        f"{_bounded(total.delayed)} delayed",
        *([f"{total.created:,} created"] if total.created else []),
        f"{_bounded(total.dead_last_hour)} died in the last hour",
    ]
    yield Text(cut_end(", ".join(counts), width))
    rates = [
        f"{_rate(total.in_per_second)}/s in" if total.in_per_second is not None else "",
        f"{_rate(total.out_per_second)}/s out" if total.out_per_second is not None else "",
        count(len(alive), "worker"),
    ]
    counted = (snapshot.at - snapshot.counted_at).total_seconds()
    late = f" (counted {span_text(counted)} ago)" if counted > STALE_SECONDS else ""
    yield Text(cut_end(", ".join(filter(None, rates)) + late, width))


def _panels(snapshot: TopSnapshot, now: datetime) -> list[Panel]:
    queues = [_queue(queue, now) for queue in snapshot.queues]
    live_first = sorted(snapshot.workers, key=lambda worker: not worker.alive)
    workers = [_worker(worker, now) for worker in live_first]
    running = [_running(job, now) for job in snapshot.running]
    ended = [_ended(job, now) for job in snapshot.ended]
    return [
        Panel(QUEUE_TITLES, queues, "no unfinished jobs"),
        Panel(WORKER_TITLES, workers, "no live workers"),
        Panel(RUNNING_TITLES, running, "no running jobs", droppable=["ETA", "attempt"]),
        Panel(ENDED_TITLES, ended, "no recently finished jobs", droppable=["took", "attempt"]),
    ]


def _limits(snapshot: TopSnapshot) -> list[Panel]:
    """A panel if there are limits, the full ones first."""
    limits = sorted(snapshot.limits, key=lambda limit: not limit.full)
    return [Panel(LIMIT_TITLES, [_limit(limit) for limit in limits], "", droppable=["full keys"])] if limits else []


def _limit(limit: LimitRow) -> list[Cell]:
    per_key = is_for_each_key(limit.limit)
    return [
        limit.limit,
        Styled(f"{limit.used:,}", "yellow" if limit.full else ""),
        "" if limit.concurrency is None else f"{limit.concurrency:,}{' a key' if per_key else ''}",
        f"{limit.full:,}" if per_key else "",
        "" if limit.rate is None else f"{rate_text(limit.rate)}{' a key' if per_key else ''}",
    ]


def _queue(queue: QueueRow, now: datetime) -> list[Cell]:
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    paused = Styled(f"{queue.queue} (paused{by})", "yellow", short=f"{queue.queue} (paused)")
    return [
        paused if queue.paused_at else queue.queue,
        f"{queue.waiting:,}",
        Styled(f"{queue.running:,}", "cyan" if queue.running else ""),
        Styled(_bounded(queue.retrying), "yellow" if queue.retrying else ""),
        _bounded(queue.delayed),
        Styled(_bounded(queue.dead_last_hour), "red" if queue.dead_last_hour else ""),
        age_text(now, queue.oldest_waiting_at),
        _rate(queue.in_per_second),
        _rate(queue.out_per_second),
    ]


def _worker(worker: WorkerRow, now: datetime) -> list[Cell]:
    busy = worker.leases if worker.slots is None else min(worker.leases, worker.slots)
    return [
        worker.worker_id,
        worker.name or "",
        Styled(worker.status, WORKER_STYLES[worker.status]),
        f"{busy}" if worker.slots is None else f"{busy}/{worker.slots}",
        f"{worker.leases}",
        f"{age_text(now, worker.last_heartbeat_at)} ago" if worker.last_heartbeat_at else "never",
    ]


def _running(job: RunningRow, now: datetime) -> list[Cell]:
    return [
        job.job_id,
        job.job_type,
        f"{job.attempt}/{job.max_attempts}",
        age_text(now, job.since),
        "" if job.percent is None else Styled(bar(job.percent, BAR_WIDTH), short=f"{job.percent:.0f} %"),
        span_text((job.eta_at - now).total_seconds()) if job.eta_at else "",
        Styled(f"cancel requested; {job.step or ''}".rstrip("; "), "yellow")
        if job.cancel_requested
        else job.step or "",
    ]


def _ended(job: EndedRow, now: datetime) -> list[Cell]:
    return [
        job.job_id,
        job.job_type,
        f"{job.attempt}/{job.max_attempts}",
        age_text(now, job.at),
        "" if job.seconds is None else _took(job.seconds),
        Styled(job.state, STATE_STYLES[State(job.stored_state)]),
        job.code or "",
    ]


def _bounded(number: int) -> str:
    """With a + at the counting limit."""
    return f"{number:,}+" if number >= COUNT_MAX else f"{number:,}"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def _took(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else span_text(seconds)
