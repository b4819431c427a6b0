"""Renders a query as SQL for PostgreSQL or SQLite. These are all markers:

{now} {now+x} {now-x}   the database clock, plus or minus x seconds
{rows:r(a int, ...)}    the parameter :r, a list of tuples, as a table r
{in:ids uuid}           is in the list :ids
{in picked}             is in the column `id` of that CTE
{any:names col text}    col is in the list :names, or :names is NULL
{items:col}             the items of a JSON array in a column, as a table with the column `value`
{skip_locked} {locked} {locked row}   row locks; SQLite has one writer and needs none
{from:verb} {to:verb}   the states of a verb as literals, so that partial indexes are used
{running}               the job is running, in a statement that selects by id
{bit:a>b}               the bit of a pair of states in `moves`
{token}                 a new lease token, one per row
{next version}          the assignments that number the next event of a job, name its actor and, on PostgreSQL, set its
                        position
{walk:after}            a CTE `walk`: the lanes with claimable jobs after :after, or all of them (zero), up to the limit
{keyed:after}           a CTE `keyed`: the lanes after :after that have keyed lanes with a turn, up to the limit
{any keyed}             there are keyed lanes with a turn
{listed:keys}           a CTE `listed`: the lanes of `keyed`, and those of the queues and types if it is full
{turns:lane}            the number of turns of that lane, up to 100
{levels:asked}          a CTE `levels`: the priorities of the claimable jobs of the lanes :asked, up to the limit
{has turns:lane}        it is the turn of a keyed lane of this lane
{turns of lane}         joins `turn`, the first keyed lanes of `listed.lane` whose turn it is, up to :most
{turn:column}           a column of `turn`
{rows of key lanes:ids} the rows of these keyed lanes that no other claim replaces now
{lane of:lane}          the lane of a keyed lane, or the lane itself
{limit name:bucket}     the limit of a bucket: that of one key before that of each key
{limit name:bucket else each}   the same, where the limit of each key is known
{key limit:bucket}      the limit of each key, `key:TYPE`, of the bucket `key:TYPE KEY`; of others the bucket
{limit of key:bucket}   joins `m` and `k`, the limit and the tokens of a bucket of the type of lane `l`
{used up:bucket}        running jobs hold all units of it
{full key:bucket}       it has no units or no tokens left for a job
{open lane}             lane `l` has the queues and types that are asked for; its queue is not paused, its limits have
                        units left
{open to worker}        the same, and worker `w` may claim from it
{fits worker}           worker `w` serves the tenant of lane `l` and has what its jobs require
{other lanes:lane}      another lane than the parameter :lane has claimable jobs
{not paused}            the queue of lane `l` is not paused
{waits of lane}         how long jobs of lane `l` wait for a worker that they prefer, if this one is not
{blocked:l}             a limit of the lane has no units left for a job of it
{limited:l}             the lane has limits
{pairs:col}             the items of a JSON object in a column, as a table with the columns `key` and `value`
{least} {greatest}      the functions of these names
{tokens:m}              the tokens of limit `m`, which were `k`
{tokens in:m}           the seconds until it has tokens for one unit
{try lock:bucket}       no other transaction has locked this bucket of a limit; locks it until the end of this one
{seconds since:time}    the seconds between this time and {now}, not below 0
{head of:lane}          joins `head`, the most urgent claimable job of that lane
{head of key lane}      the same for the keyed lane of `turn`
{head of level}         the same for the lane and priority of `levels`
{mine or plain head}    {mine or plain} for the job of `head`
{best of lane}          joins `best`, the most urgent jobs of each row `wanted`, and locks them; in a query
                        `behind_last`, those of one priority behind the job :after
{picked columns}        the columns of `best`
{still open}            if :unread, lane `wanted` is open to the worker; if :only, it is the only lane
{taken} {in taken}      the picked jobs are no longer claimable: on PostgreSQL their rows of holdfast_ready are deleted
{found:ids}             the same for the jobs :ids
{lane number}           a number that no other lane of tenant `t` has
{drop stale:lanes}      deletes rows of holdfast_ready whose jobs are not claimable, on PostgreSQL; their number
{next due}              the least `run_at` of the jobs that wait for it
{next turn}             the next turn of a keyed lane of `keyed`
{next tokens}           the seconds until a lane of `walk` or `keyed` has tokens for a job
{stale batches} {drop batches}   the lists of running jobs that PostgreSQL has: are there old ones? drop them
{may be expired}        the running jobs of claims that are old enough for an expired lease, as a table
{some running:cond}     there is a running job for which this holds; the newest claims are looked at first
{pos}                   the minimum log position of a new event of this transaction
{moved}                 the columns that a move returns, and those that its event needs (on SQLite the rowid)
{lease ended}           the assignments that end a lease
{mine}                  the job needs no hooks; or, in a query `with_hooks`, only hooks that this process has
{mine or plain:alias}   either of the two, for the row of jobs with this alias
{mine or freed}         {mine} for a finished job; extensions that its type no longer needs do not count
{lacked}                job type `t` needs hooks that the creating process (row `known`) does not have
{not held back:verb}    no failed hook defers this move of the job
{or ignore}             on SQLite, a row with NULL in a column that must not be NULL is left out
{lock_timeout}          true; sets the lock timeout of the transaction to :lock_timeout milliseconds, if given
{limit}                 a literal: for a bound limit PostgreSQL plans for a tenth of the table
{filters}               the only dynamic WHERE, from a fixed set of filters
{horizon}               the oldest open transaction: earlier events may still appear at or above it
{beyond}                no correct reader position is at or above it
{ceiling}               no event that this server wrote is at or above it
{log end}               the highest stored position
{parts of jobs}         the parts of a row of jobs as a JSON array, in their order; NULL if there are none
{job} {summary} {event} {attempt} {worker} {key}   the columns of a table
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from holdfast.model.history import ATTEMPT_COLUMNS, EVENT_COLUMNS
from holdfast.model.job import COLUMNS
from holdfast.model.key import KEY_COLUMNS
from holdfast.model.summary import SUMMARY_COLUMNS
from holdfast.model.worker import WORKER_COLUMNS
from holdfast.store.queries import Query
from holdfast.store.render import dialects, lanes, limits, moves
from holdfast.store.render.dialects import (
    MARKER,
    POSTGRES,
    SQLITE,
    Text,
    postgres_row,
    shifted_now,
    sqlite_row,
    times_of,
)
from holdfast.store.render.history import (
    columns_of,
    columns_of_history,
    history_afterwards,
    history_steps,
    known_values,
)
from holdfast.store.render.hooks import HOOKED

__all__ = [
    "FILTERS",
    "POSTGRES",
    "SQLITE",
    "Statement",
    "columns_of",
    "history_afterwards",
    "known_values",
    "render",
]

FILTERS = {
    "tenant": "tenant = :tenant",
    "states": "state {in:states text}",
    # "LIFECYCLE STATE", or "* STATE" for every lifecycle
    "lifecycle_states": "(lifecycle || ' ' || state {in:lifecycle_states text}"
    " OR '* ' || state {in:lifecycle_states text})",
    "types": "type {in:types text}",
    "queues": "queue {in:queues text}",
    "tag": "EXISTS (SELECT 1 FROM {items:holdfast_jobs.tags} AS t WHERE t.value = :tag)",
    "before": "id < :before",
    "created_after": "created_at >= :created_after",
    "created_before": "created_at < :created_before",
    "error_code": "reason = :error_code",
    "redrive_of": "redrive_of = :redrive_of",
    "subject": "subject = :subject",
    "parent_id": "parent_id = :parent_id",
}
_PARAM = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*(?:\.\d+)?)")
_FIRST = re.compile(r"WITH (.*?)\n(?=UPDATE )", re.DOTALL)  # the CTEs of a query


@dataclass(frozen=True)
class Statement:
    """Rendered SQL: `text` with `:name` on SQLite and `$1` on PostgreSQL; `params` in order of first use.

    A query for single rows has `?` on SQLite, and `params` has a name for each of them."""

    text: str
    params: tuple[str, ...]
    times: tuple[tuple[str, int], ...] = ()  # (rows, index) of the time columns of `{rows:...}`

    @cached_property
    def places(self) -> list[tuple[str, int | None]]:
        """The source of each argument: a parameter, or a column of a row parameter."""
        split = [name.partition(".") for name in self.params]
        return [(name, int(place) if place else None) for name, _, place in split]

    @cached_property
    def runs(self) -> list[tuple[str, int, int]]:
        """`places` with neighboring columns of a row in one: name, first, and after the last; 0 for no column."""
        runs: list[tuple[str, int, int]] = []
        for name, place in self.places:
            if place is None:
                runs.append((name, 0, 0))
            elif runs and runs[-1][0] == name and runs[-1][2] == place:
                runs[-1] = (name, runs[-1][1], place + 1)
            else:
                runs.append((name, place, place + 1))
        return runs


@lru_cache(maxsize=4096)
def render(query: Query, dialect: str, limit: int | None = None, filters: tuple[str, ...] = ()) -> Statement:
    text = _expand(query, query.text, dialect, limit, filters)
    if query.recorded and dialect == POSTGRES:
        first = _FIRST.match(text)
        moved = f"moved AS (\n{text[first.end() :] if first else text}\n)"
        steps = ",\n".join([*([first[1]] if first else []), moved, *history_steps(query)])
        enough = " LIMIT 1" if query.plain and (query.gives or "").startswith("minimal") else ""  # all rows or none
        text = f"WITH {steps}\nSELECT {', '.join(columns_of(query))} FROM moved{enough}"
    if query.values and dialect == SQLITE:  # its row is known without RETURNING
        text = text[: text.rindex("\nRETURNING ")]
    names = tuple(dict.fromkeys(_PARAM.findall(text)))
    if query.single and dialect == SQLITE:
        return Statement(_PARAM.sub("?", text), tuple(_PARAM.findall(text)), times_of(query))
    if dialect == POSTGRES:
        text = _PARAM.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    return Statement(text, names, times_of(query))


def _expand(query: Query, text: str, dialect: str, limit: int | None, filters: tuple[str, ...]) -> str:
    def expanded(found: re.Match[str]) -> str:
        word, _, rest = found[1].partition(":")
        if word == "filters":
            return " AND ".join(MARKER.sub(expanded, FILTERS[name]) for name in filters) or "TRUE"
        if word == "limit":
            if limit is None:
                raise TypeError(f"query {query.name} needs a limit")
            return str(int(limit))
        if word == "moved":
            wanted = columns_of(query) + (columns_of_history(query) if dialect == POSTGRES else ("rowid",))
            return ", ".join(f"holdfast_jobs.{name}" for name in dict.fromkeys(wanted))
        if word == "best of lane" and query.behind:
            return MARKER.sub(expanded, lanes.BEST_BEHIND)
        if word in HOOKED:
            return MARKER.sub(expanded, HOOKED[word](query.mine, rest))
        if word.startswith(("now+", "now-")):
            return shifted_now(found[1][3], found[1][4:], dialect)
        if word == "rows" and query.single:
            return postgres_row(rest) if dialect == POSTGRES else sqlite_row(rest)
        marker = _SHARED[word] if word in _SHARED else _DIALECT[word][dialect == SQLITE]
        return MARKER.sub(expanded, marker if isinstance(marker, str) else marker(rest))

    return MARKER.sub(expanded, text)


def _job_columns() -> str:
    """The lease of a job that is not running is the last one: it does not count."""
    held = dict.fromkeys(("lease_worker", "lease_instance", "lease_token", "claimed_at"), "state = 'running'")
    shown = {name: f"CASE WHEN {when} THEN {name} END AS {name}" for name, when in held.items()}
    shown["last_worker"] = "CASE WHEN state <> 'running' THEN lease_worker END AS last_worker"
    return ", ".join(shown.get(name, name) for name in COLUMNS)


_SHARED: dict[str, Text] = {
    **moves.SHARED,
    **lanes.SHARED,
    **limits.SHARED,
    "job": _job_columns(),
    "summary": ", ".join(SUMMARY_COLUMNS),
    "event": ", ".join(EVENT_COLUMNS),
    "attempt": ", ".join(ATTEMPT_COLUMNS),
    "worker": ", ".join(WORKER_COLUMNS),
    "key": ", ".join(KEY_COLUMNS),
}
_DIALECT = {**dialects.BY_DIALECT, **lanes.BY_DIALECT, **limits.BY_DIALECT}
