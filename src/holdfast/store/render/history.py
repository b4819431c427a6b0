"""The columns that a move returns, and the statements that record it: events and lists of jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from holdfast.lifecycle import State
from holdfast.model.job import LEASE_COLUMNS
from holdfast.store.queries import Query
from holdfast.store.render.dialects import POSTGRES_NOW
from holdfast.store.render.moves import moves_named

# The columns that the engine gets for each moved row ...
MOVE_COLUMNS = (
    *("id", "tenant", "type", "queue", "lifecycle", "version", "came_from", "state", "reason", "attempt", "epoch"),
    *("priority", "updated_at", "lease_expires_at", "cancel_requested_at", "claimed_at"),
)
# ... and those that its events and lists may need.
HISTORY_COLUMNS = (
    *("id", "tenant", "version", "came_from", "state", "reason", "attempt", "epoch", "updated_at", "moved_by", "pos"),
    *("lease_worker", "lease_instance", "lease_token", "step", "percent", "counters", "error"),
    *("lane", "key_lane", "priority", "needs", "run_at", "due"),
)
# The columns for observers of moves: fetched for every job, so few, and without those that are known from the query.
OBSERVED_COLUMNS = ("id", "tenant", "type", "queue", "lifecycle", "came_from", "state", "reason", "attempt", "version")
_GIVES = {
    None: MOVE_COLUMNS,
    "lease": LEASE_COLUMNS + MOVE_COLUMNS,
    "minimal move": ("id",),
    "minimal lease": LEASE_COLUMNS,
    "observed move": OBSERVED_COLUMNS,
    "observed lease": LEASE_COLUMNS + OBSERVED_COLUMNS,
}
_NO_REASON = re.compile(r"\breason\s*=\s*NULL")
_WORD = re.compile(r"(?<![:\w])[a-z_]+")  # not the name of a parameter


@lru_cache(maxsize=256)
def columns_of(query: Query) -> tuple[str, ...]:
    """The columns that a move returns; the first is always the id."""
    wanted = dict.fromkeys(_GIVES[query.gives] + (("type",) if query.mine else ()))  # hooks are looked up by type
    unasked = known_values(query) if (query.gives or "").startswith("observed") else {}
    return tuple(name for name in wanted if name not in unasked)


@lru_cache(maxsize=256)
def known_values(query: Query) -> dict[str, str | None]:
    """Columns with the same known value for each moved job, which need not be fetched."""
    if query.move is None:
        return {}
    sources, targets = moves_named(query.move)
    known: dict[str, str | None] = {"version": None}  # only used for created jobs
    known |= {"came_from": sources[0].value} if len(sources) == 1 else {}
    known |= {"state": targets[0].value} if len(targets) == 1 else {}
    return known | ({"reason": None} if _NO_REASON.search(query.text) else {})


_READY = (
    "INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) "
    "SELECT coalesce(key_lane, lane), priority, needs IS NOT NULL, id, run_at FROM moved WHERE due"
)
_SAME_IN_NEW = {"attempt": "0", "epoch": "0", "reason": "NULL"}
_SAME_IN_PLAIN = {"tenant": ":tenant", "state": f"'{State.QUEUED}'"}
_SAME_IN_VALUES = _SAME_IN_NEW | _SAME_IN_PLAIN | {"id": ":id", "updated_at": ":now", "moved_by": ":actor"}
_PLAIN_READY = (
    "INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) "
    f"SELECT :lane, 0, FALSE, id, {POSTGRES_NOW} FROM moved"
)
_BATCH = (
    "INSERT INTO holdfast_claim_batches (claimed_at, expires_at, worker, instance, ids) "
    f"SELECT {POSTGRES_NOW}, min(lease_expires_at), :worker, :instance, array_agg(id) FROM moved HAVING count(*) > 0"
)


@lru_cache(maxsize=256)
def history_steps(query: Query) -> tuple[str, ...]:
    """PostgreSQL writes jobs, events and lists of jobs in one statement; for SQLite see `history_afterwards`.

    What is the same for all rows is not read from them."""
    same = {name: "NULL" if value is None else f"'{value}'" for name, value in known_values(query).items()}
    same.pop("version", None)
    same |= {"moved_by": ":actor", "updated_at": POSTGRES_NOW}
    same |= _SAME_IN_NEW if query.create else {}
    same |= _SAME_IN_PLAIN if query.plain else {}
    if query.ends or query.move == "claim":
        same |= {f"lease_{name}": f":{name}" for name in ("worker", "instance") if f":{name}" in query.text}
    steps = []
    for n, insert in enumerate(history_of(query)):
        values = {column: same.get(value, value) for column, value in insert.values.items()}
        steps.append(
            f"history{n} AS ({Insert(insert.table, values | {'pos': 'pos'}, insert.where).sql('moved', 'TRUE')})"
        )
    if query.create:
        steps.append(f"ready AS ({_PLAIN_READY if query.plain else _READY})")
    if query.move == "claim":
        steps.append(f"batch AS ({_BATCH})")
    return tuple(steps)


def columns_of_history(query: Query) -> tuple[str, ...]:
    named = {word for step in history_steps(query) for word in _WORD.findall(step.partition("SELECT")[2])}
    return tuple(name for name in HISTORY_COLUMNS if name in named)


@dataclass(frozen=True)
class Insert:
    """One event per moved row. `values` by column: columns of that row, or literals."""

    table: str
    values: dict[str, str]
    where: str = "TRUE"

    def sql(self, source: str, which: str) -> str:
        return self._into(f"SELECT {', '.join(self.values.values())} FROM {source} WHERE {which} AND {self.where}")

    def of_params(self) -> str:
        """For a query with `values`."""
        return self._into(f"VALUES ({', '.join(_SAME_IN_VALUES.get(value, value) for value in self.values.values())})")

    def _into(self, rows: str) -> str:
        return f"INSERT INTO {self.table} ({', '.join(self.values)}) {rows}"


@lru_cache(maxsize=256)
def history_of(query: Query) -> tuple[Insert, ...]:
    if query.create:
        if query.plain:
            return (_event("create", seq="1", target="state"),)
        born = "CASE WHEN version = 2 THEN 'created' ELSE state END"
        return (
            _event("create", seq="1", target=born),
            _event("accept", seq="2", source="'created'", target="state", where="version = 2"),
        )
    data = {"data": query.data} if query.data else {}
    if query.note == "progress":
        return (_event("progress", worker="lease_worker", step="step", percent="percent", data="counters"),)
    worker = "lease_worker" if query.ends or query.move == "claim" else _HOLDER
    if query.note:
        return (_event(query.note, worker=worker, **data),)
    if query.move == "claim":
        data = {"instance": "lease_instance", "token": "lease_token"}
    return (_event(query.move or "", source="came_from", target="state", worker=worker, **data),)


_HOLDER = "CASE WHEN state = 'running' THEN lease_worker END"  # otherwise the worker of the last lease


@lru_cache(maxsize=512)
def history_afterwards(query: Query, *, one: bool = False) -> tuple[str, ...]:
    """The statements that SQLite runs after the query, for the rows that it moved, or for the only one."""
    if query.values:
        return tuple(insert.of_params() for insert in history_of(query))
    moved = "rowid = :moved" if one else "rowid IN (SELECT value FROM json_each(:moved))"
    return tuple(insert.sql("holdfast_jobs", moved) for insert in history_of(query))


def _event(
    verb: str,
    *,
    seq: str = "version",
    source: str = "NULL",
    target: str = "NULL",
    worker: str = "NULL",
    where: str = "TRUE",
    **more: str,
) -> Insert:
    values = {
        "job_id": "id",
        "seq": seq,
        "tenant": "tenant",
        "at": "updated_at",
        "verb": f"'{verb}'",
        "from_state": source,
        "to_state": target,
        "attempt": "attempt",
        "epoch": "epoch",
        "actor": "moved_by",
        "worker_id": worker,
        "reason": "reason",
    }
    return Insert("holdfast_events", values | more, where)
