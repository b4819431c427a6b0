"""A line for each move of a job, in the process that made it, after its commit.

It costs about a microsecond: jobs are many, but most lines differ in nothing but the job's id and the time, and what
they have in common is made once. So it is checked and redacted once, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache
from operator import itemgetter
from typing import Any

from holdfast.lifecycle import Lifecycles, State
from holdfast.observe.logs import MOVES, Log
from holdfast.observe.words import word
from holdfast.redaction import redacted_value
from holdfast.store import Row
from holdfast.store.queries import Query
from holdfast.store.render import GIVES

KNOWN_MAX = 10_000
FACTS = ("type", "queue", "tenant", "lifecycle", "came_from", "state", "reason", "attempt", "version")

_log = logging.getLogger(MOVES)
Around = tuple[str, str]  # what stands before a job's id, and behind it


class Moves:
    """An observer of the engine's."""

    def __init__(self, log: Log, lifecycles: Lifecycles) -> None:
        self._log, self._lifecycles = log, lifecycles
        self._known: dict[tuple[str, str, int], dict[Any, list[Around]]] = {}

    def __call__(self, query: Query, rows: list[Row], actor: str) -> None:
        verb = "create" if query.create else query.move
        if verb is None:  # a wish or a report moves nothing
            return
        known = self._known.setdefault((verb, actor, _log.getEffectiveLevel()), {})
        head, facts_of = self._log.head(), _facts_of(query.gives)
        pieces: list[str] = []
        last = None
        arounds: list[Around] = []
        for row in rows:
            if (facts := facts_of(row)) != last:  # most often all are alike
                last = facts
                arounds = known.get(facts) or self._learn(known, facts, verb, actor)
            for before, behind in arounds:
                pieces += (head, before, row[0], behind)
        self._log.put(pieces)

    def _learn(self, known: dict[Any, list[Around]], facts: tuple[Any, ...], verb: str, actor: str) -> list[Around]:
        if len(known) >= KNOWN_MAX:  # clients choose some of what is in it
            known.clear()
        known[facts] = list(self._told(facts, verb, actor))
        return known[facts]

    def _told(self, facts: tuple[Any, ...], verb: str, actor: str) -> Iterator[Around]:
        job_type, queue, tenant, lifecycle, source, target, reason, attempt, version = facts
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


@cache
def _facts_of(gives: str | None) -> Callable[[Row], tuple[Any, ...]]:
    """From a row of a query that answers with these; by place, which takes half of the time."""
    return itemgetter(*(GIVES[gives].index(name) for name in FACTS))


def _steps(verb: str, source: str | None, target: str, version: int) -> list[tuple[str, str | None, str]]:
    """As its history has them: one that is born and accepted at once has made two moves."""
    if verb == "create" and version == 2:
        return [("create", None, State.CREATED), ("accept", State.CREATED, target)]
    return [(verb, None if verb == "create" else source, target)]


def _unless_default(**names: str) -> dict[str, str]:
    return {name: value for name, value in names.items() if value != "default"}
