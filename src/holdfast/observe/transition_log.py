"""A line for each move of a job, in the process that made it, after its commit.

It costs about a microsecond: jobs are many, but most lines differ in nothing but the job's id and the time, and what
they have in common is made once. So it is checked and redacted once, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from holdfast.lifecycle import Lifecycles, State
from holdfast.observe.logs import MOVES, Log
from holdfast.observe.state_names import word
from holdfast.redaction import redacted_value
from holdfast.store import Row
from holdfast.store.queries import Query
from holdfast.store.render import certain, given

KNOWN_MAX = 10_000
FACTS = ("type", "queue", "tenant", "lifecycle", "came_from", "state", "reason", "attempt", "version")

_log = logging.getLogger(MOVES)
Around = tuple[str, str]  # what stands before a job's id, and behind it


class TransitionLog:
    """An observer of the engine's."""

    def __init__(self, log: Log, lifecycles: Lifecycles) -> None:
        self._log, self._lifecycles = log, lifecycles
        self._known: dict[tuple[str, str, int], dict[Any, list[Around]]] = {}

    def __call__(self, query: Query, rows: list[Row], actor: str) -> None:
        if not (query.create or query.move):  # a wish or a report moves nothing
            return
        known = self._known.setdefault((query.name, actor, _log.getEffectiveLevel()), {})
        head, id_chars = self._log.head(), self._log.form.id_chars
        pieces: list[str] = []
        for facts, alike in groupby(_plain(rows), _facts_of(query)):  # most often all are
            arounds = known.get(facts) or self._learn(known, facts, query, actor)
            pieces += _lines(head, arounds, [row[0][:id_chars] for row in alike])
        self._log.put(pieces)

    def _learn(self, known: dict[Any, list[Around]], facts: tuple[Any, ...], query: Query, actor: str) -> list[Around]:
        if len(known) >= KNOWN_MAX:  # clients choose some of what is in it
            known.clear()
        known[facts] = list(self._told(dict(zip(_asked(query), facts, strict=True)) | certain(query), query, actor))
        return known[facts]

    def _told(self, facts: dict[str, Any], query: Query, actor: str) -> Iterator[Around]:
        job_type, queue, tenant, lifecycle, source, target, reason, attempt, version = (facts[name] for name in FACTS)
        verb = query.move or "create"
        level = logging.WARNING if verb == "reap" else logging.INFO
        if not _log.isEnabledFor(level):
            return
        common = {"job_type": job_type, "queue": queue, "reason": reason, "attempt": attempt, "actor": actor}
        common |= _unless_default(tenant=tenant, lifecycle=lifecycle)
        for each, before, after in _steps(verb, source, target, version):
            said = word(self._lifecycles, lifecycle, before), word(self._lifecycles, lifecycle, after)
            fields = {"verb": each, "from": said[0], "to": said[1], **common}
            message = f"{each}: {said[0] or '-'} -> {said[1]}"
            yield self._log.form.around_id(logging.getLevelName(level).lower(), MOVES, message, redacted_value(fields))


def _lines(head: str, arounds: list[Around], ids: list[str]) -> Iterator[str]:
    """Of each job, one after the other."""
    if len(arounds) == 1:
        [(before, behind)] = arounds
        yield from (head, before, f"{behind}{head}{before}".join(ids), behind)
    else:
        yield from (piece for job in ids for before, behind in arounds for piece in (head, before, job, behind))


def _plain(rows: list[Any]) -> Iterable[Any]:
    """A row of SQLite is a tuple that answers to names, too, and takes its time for it."""
    return map(tuple, rows) if isinstance(rows[0], tuple) else rows


@cache
def _facts_of(query: Query) -> Callable[[Row], tuple[Any, ...]]:
    """From a row that it answers with; by place, which takes half of the time."""
    return itemgetter(*(given(query).index(name) for name in _asked(query)))


def _asked(query: Query) -> list[str]:
    return [name for name in FACTS if name not in certain(query)]


def _steps(verb: str, source: str | None, target: str, version: int | None) -> list[tuple[str, str | None, str]]:
    """As its history has them: one that is born and accepted at once has made two moves."""
    if verb == "create" and version == 2:
        return [("create", None, State.CREATED), ("accept", State.CREATED, target)]
    return [(verb, None if verb == "create" else source, target)]


def _unless_default(**names: str) -> dict[str, str]:
    return {name: value for name, value in names.items() if value != "default"}
