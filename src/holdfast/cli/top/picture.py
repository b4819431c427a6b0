"""A frame as a person sees it: a head and four tables, cut to the terminal's height and width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast.cli.jobs.views import STYLES as STATE_STYLES
from holdfast.cli.output import Cell, Styled, age_text, bar, count, short_id, span_text, time_text
from holdfast.cli.top.frame import EndedLine, Frame, QueueLine, RunningLine, WorkerLine
from holdfast.cli.top.watch import COUNT_MAX
from holdfast.cli.workers import STYLES
from holdfast.lifecycle import State
from holdfast.redaction import printable

WORKER_STYLES = STYLES | {"silent": "red"}
WIDE = 110  # columns: so many are needed for whole ids
BAR_WIDTH = 10
STALE_SECONDS = 5.0
TITLE_LINES = 2  # of a table: an empty line and its titles


@dataclass(frozen=True)
class Section:
    """Columns whose title ends with `>` stand to the right and are never cut; one that ends with `<` is never cut."""

    titles: Sequence[str]
    rows: list[list[Cell]]
    nothing: str

    def table(self, most: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        cells = [[_text(cell) for cell in row] for row in self._cut(most)]
        for place, title in enumerate(self.titles):
            whole = title.endswith((">", "<"))
            width = max([len(title) - whole, *(row[place].cell_len for row in cells)])
            table.add_column(
                title.rstrip("<>"),
                justify="right" if title.endswith(">") else "left",
                no_wrap=True,
                overflow="ellipsis",
                min_width=width if whole else None,
            )
        for row in cells:
            table.add_row(*row)
        return table

    def _cut(self, most: int) -> list[list[Cell]]:
        """So many rows; where there are more, the last one says so."""
        if not self.rows:
            return [self._only(self.nothing)]
        if len(self.rows) <= most:
            return self.rows
        shown = self.rows[: max(0, most - 1)]
        return [*shown, self._only(f"and {len(self.rows) - len(shown):,} more")]

    def _only(self, words: str) -> list[Cell]:
        return [Styled(words, "dim"), *[""] * (len(self.titles) - 1)]


def picture(frame: Frame, *, width: int, height: int | None = None, trouble: str = "", foot: str = "") -> Group:
    """All of it, or as much as `height` lines hold."""
    head = [*_head(frame), *([Text(printable(trouble), "bold red", no_wrap=True)] if trouble else [])]
    sections = [
        _queues(frame),
        _workers(frame, whole=width >= WIDE),
        _running(frame, whole=width >= WIDE),
        _ended(frame, whole=width >= WIDE),
    ]
    wanted = [max(1, len(section.rows)) for section in sections]
    if height is not None:
        wanted = shared(height - len(head) - TITLE_LINES * len(sections) - bool(foot), wanted)
    tables = [part for section, rows in zip(sections, wanted, strict=True) for part in ("", section.table(rows))]
    return Group(*head, *tables, *([Text(foot, "dim")] if foot else []))


def shared(lines: int, wanted: list[int]) -> list[int]:
    """Lines dealt out in turn to whoever wants more; one each, whatever there is."""
    got = [1] * len(wanted)
    while sum(got) < lines and got != wanted:
        for place, most in enumerate(wanted):
            if got[place] < most and sum(got) < lines:
                got[place] += 1
    return got


def _head(frame: Frame) -> Iterator[Text]:
    yield Text(f"holdfast top  {printable(frame.database)}  {time_text(frame.at)} UTC", "bold", no_wrap=True)
    total = frame.totals
    alive = [worker for worker in frame.workers if worker.alive]
    said = [
        f"{_number(total.waiting)} waiting",
        f"{_number(total.running)} running",
        f"{_bounded(total.retrying)} retrying",
        f"{_bounded(total.delayed)} delayed",
        *([f"{_number(total.created)} created"] if total.created else []),
        f"{_bounded(total.dead_last_hour)} died in the last hour",
    ]
    yield Text(", ".join(said), no_wrap=True, overflow="ellipsis")
    pace = [
        f"{_rate(total.in_per_second)}/s in" if total.in_per_second is not None else "",
        f"{_rate(total.out_per_second)}/s out" if total.out_per_second is not None else "",
        count(len(alive), "worker"),
    ]
    counted = (frame.at - frame.counted_at).total_seconds()
    late = f" (counted {span_text(counted)} ago)" if counted > STALE_SECONDS else ""
    yield Text(", ".join(filter(None, pace)) + late, no_wrap=True, overflow="ellipsis")


def _queues(frame: Frame) -> Section:
    numbers = ("waiting", "running", "retrying", "delayed", "dead 1 h", "oldest", "in/s", "out/s")
    rows = [_queue(queue, frame.at) for queue in frame.queues]
    return Section(["queue", *(f"{name}>" for name in numbers)], rows, "no job waits or runs")


def _queue(queue: QueueLine, now: datetime) -> list[Cell]:
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    return [
        Styled(f"{queue.queue} (paused{by})", "yellow") if queue.paused_at else queue.queue,
        _number(queue.waiting),
        Styled(_number(queue.running), "cyan" if queue.running else ""),
        Styled(_bounded(queue.retrying), "yellow" if queue.retrying else ""),
        _bounded(queue.delayed),
        Styled(_bounded(queue.dead_last_hour), "red" if queue.dead_last_hour else ""),
        age_text(now, queue.oldest_waiting_at),
        _rate(queue.in_per_second),
        _rate(queue.out_per_second),
    ]


def _workers(frame: Frame, *, whole: bool) -> Section:
    live_first = sorted(frame.workers, key=lambda worker: not worker.alive)
    rows = [_worker(worker, frame.at, whole=whole) for worker in live_first]
    return Section(["worker<", "name", "status<", "busy>", "leases>", "heard of<"], rows, "no worker is alive")


def _worker(worker: WorkerLine, now: datetime, *, whole: bool) -> list[Cell]:
    busy = worker.leases if worker.slots is None else min(worker.leases, worker.slots)
    return [
        _id(worker.worker_id, whole=whole),
        worker.name or "",
        Styled(worker.status, WORKER_STYLES[worker.status]),
        f"{busy}" if worker.slots is None else f"{busy}/{worker.slots}",
        f"{worker.leases}",
        f"{age_text(now, worker.last_heartbeat_at)} ago" if worker.last_heartbeat_at else "never",
    ]


def _running(frame: Frame, *, whole: bool) -> Section:
    rows = [_running_row(job, frame.at, whole=whole) for job in frame.running]
    return Section(["running<", "type", "attempt>", "since>", "progress<", "ready in>", "step"], rows, "no job runs")


def _running_row(job: RunningLine, now: datetime, *, whole: bool) -> list[Cell]:
    return [
        _id(job.job_id, whole=whole),
        job.job_type,
        f"{job.attempt}/{job.max_attempts}",
        age_text(now, job.since),
        "" if job.percent is None else bar(job.percent, BAR_WIDTH),
        span_text((job.eta_at - now).total_seconds()) if job.eta_at else "",
        Styled(f"asked to stop; {job.step or ''}".rstrip("; "), "yellow") if job.cancel_requested else job.step or "",
    ]


def _ended(frame: Frame, *, whole: bool) -> Section:
    rows = [_ended_row(job, frame.at, whole=whole) for job in frame.ended]
    return Section(["ended<", "type", "attempt>", "ago>", "took>", "how<", "code"], rows, "no job ended lately")


def _ended_row(job: EndedLine, now: datetime, *, whole: bool) -> list[Cell]:
    return [
        _id(job.job_id, whole=whole),
        job.job_type,
        f"{job.attempt}/{job.max_attempts}",
        age_text(now, job.at),
        "" if job.seconds is None else _took(job.seconds),
        Styled(job.state, STATE_STYLES[State(job.stored_state)]),
        job.code or "",
    ]


def _text(cell: Cell) -> Text:
    return Text(printable(cell.text), cell.style) if isinstance(cell, Styled) else Text(printable(cell))


def _id(job_id: str, *, whole: bool) -> str:
    """What can be pasted behind `holdfast jobs show`: all of it, or as much as tells it apart."""
    return job_id if whole else short_id(job_id)


def _number(number: int) -> str:
    return f"{number:,}"


def _bounded(number: int) -> str:
    """Counted no further than that."""
    return f"{number:,}+" if number >= COUNT_MAX else f"{number:,}"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def _took(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else span_text(seconds)
