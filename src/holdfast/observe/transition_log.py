"""Logs each state transition of a job after its commit, in the process that made it.

A line costs about a microsecond: most lines differ only in job id and time, so the common text is formatted and
redacted once and cached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from holdfast.lifecycle import Lifecycles, State
from holdfast.observe.logs import TRANSITIONS, Log
from holdfast.observe.state_names import state_name
from holdfast.redaction import redacted_value
from holdfast.store import Row
from holdfast.store.queries import Query
from holdfast.store.render import columns_of, known_values

CACHE_MAX = 10_000
FACTS = ("type", "queue", "tenant", "lifecycle", "came_from", "state", "reason", "attempt", "version")

_log = logging.getLogger(TRANSITIONS)
Around = tuple[str, str]  # the text before and after a job's id


class TransitionLog:
    """An observer of the engine."""

    def __init__(self, log: Log, lifecycles: Lifecycles) -> None:
        self._log, self._lifecycles = log, lifecycles
        self._cache: dict[tuple[str, str, int], dict[Any, list[Around]]] = {}

    def __call__(self, query: Query, rows: list[Row], actor: str) -> None:
        if not (query.create or query.move):  # progress reports and cancel requests are no transitions
            return
        cached = self._cache.setdefault((query.name, actor, _log.getEffectiveLevel()), {})
        head, id_chars = self._log.head(), self._log.form.id_chars
        pieces: list[str] = []
        for facts, alike in groupby(_plain(rows), _facts_of(query)):  # usually all rows are alike
            arounds = cached.get(facts) or self._add(cached, facts, query, actor)
            pieces += _lines(head, arounds, [row[0][:id_chars] for row in alike])
        self._log.put(pieces)

    def _add(self, cached: dict[Any, list[Around]], facts: tuple[Any, ...], query: Query, actor: str) -> list[Around]:
        if len(cached) >= CACHE_MAX:  # clients choose some of the values
            cached.clear()
        cached[facts] = list(
            self._formatted(dict(zip(_columns(query), facts, strict=True)) | known_values(query), query, actor)
        )
        return cached[facts]

    def _formatted(self, facts: dict[str, Any], query: Query, actor: str) -> Iterator[Around]:
        job_type, queue, tenant, lifecycle, source, target, reason, attempt, version = (facts[name] for name in FACTS)
        verb = query.move or "create"
        level = logging.WARNING if verb == "reap" else logging.INFO
        if not _log.isEnabledFor(level):
            return
        common = {"job_type": job_type, "queue": queue, "reason": reason, "attempt": attempt, "actor": actor}
        common |= _unless_default(tenant=tenant, lifecycle=lifecycle)
        for each, before, after in _steps(verb, source, target, version):
            left = before and state_name(self._lifecycles, lifecycle, before)
            entered = state_name(self._lifecycles, lifecycle, after)
            fields = {"verb": each, "from": left, "to": entered, **common}
            message = f"{each}: {left or '-'} -> {entered}"
            yield self._log.form.around_id(
                logging.getLevelName(level).lower(), TRANSITIONS, message, redacted_value(fields)
            )


def _lines(head: str, arounds: list[Around], ids: list[str]) -> Iterator[str]:
    """The lines of each job in turn."""
    if len(arounds) == 1:
        [(before, behind)] = arounds
        yield from (head, before, f"{behind}{head}{before}".join(ids), behind)
    else:
        yield from (piece for job in ids for before, behind in arounds for piece in (head, before, job, behind))


def _plain(rows: list[Any]) -> Iterable[Any]:
    """SQLite rows as plain tuples: access by name is slower."""
    return map(tuple, rows) if isinstance(rows[0], tuple) else rows


@cache
def _facts_of(query: Query) -> Callable[[Row], tuple[Any, ...]]:
    """Reads the facts from a row by position, which takes half the time of access by name."""
    return itemgetter(*(columns_of(query).index(name) for name in _columns(query)))


def _columns(query: Query) -> list[str]:
    return [name for name in FACTS if name not in known_values(query)]


def _steps(verb: str, source: str | None, target: str, version: int | None) -> list[tuple[str, str | None, str]]:
    """As in the job's history: a job that is created and accepted at once has two transitions."""
    if verb == "create" and version == 2:
        return [("create", None, State.CREATED), ("accept", State.CREATED, target)]
    return [(verb, None if verb == "create" else source, target)]


def _unless_default(**names: str) -> dict[str, str]:
    return {name: value for name, value in names.items() if value != "default"}
