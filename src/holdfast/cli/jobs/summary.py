"""The result of a bulk command: one line per job if ids were given, counts if a filter was given."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.cli.exit_codes import code_of
from holdfast.cli.output import count, print_json
from holdfast.redaction import printable

if TYPE_CHECKING:
    from holdfast.engine.admin.bulk import BulkOutcome

RESULTS = {
    "canceled": "canceled",
    "cancel_requested": "asked to stop",
    "woken": "woken",
    "runs": "skipped: already running",
    "redriven": "redriven",
    "already_redriven": "skipped: already redriven",
    "refused": "refused",
}


class BulkSummary:
    """Keeps counts, not jobs: a filter may match millions."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._json = options.json
        self._dry_run = options.dry_run
        self.each = not options.json and bool(options.jobs or options.dry_run)
        self._summary = not options.json and not options.jobs
        self.done = 0
        self.exit_code = 0
        self._counts: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._views: list[dict[str, Any]] = []

    def add(self, outcomes: list[BulkOutcome]) -> None:
        for outcome in outcomes:
            self.done += 1
            self._counts[outcome.what] += 1
            if outcome.refusal:
                self._refusals[outcome.refusal.code] += 1
                self._examples.setdefault(outcome.refusal.code, outcome.refusal.message)
                self.exit_code = self.exit_code or code_of(outcome.refusal)
            if self._json:
                self._views.append(outcome.view())
            if self.each:
                print(printable(f"{outcome}", keep="\t"))

    def print(self) -> None:
        if self._json:
            print_json({"dryRun": self._dry_run, "counts": self._counts, "jobs": self._views})
        if not self._summary:
            return
        if not self.done:
            print("no job matches")
        for what, number in self._counts.items():
            print(f"{count(number, 'job')} {'would be ' if self._dry_run else ''}{RESULTS[what]}")
        for code, number in self._refusals.items():
            print(printable(f"  {number} x {code}, such as: {self._examples[code]}"))


@contextmanager
def progress_bar(verb: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of jobs done; draws a bar on a terminal."""
    if not shown or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda done: progress.update(task, completed=done)
