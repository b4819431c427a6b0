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
{limit of key:bucket}   joins `m` and `k`, the limit and the tokens of a bucket of the type of lane `l`
{used up:bucket}        running jobs hold all units of it
{full key:bucket}       it has no units or no tokens left for a job
{open lane}             lane `l` has the queues and types that are asked for; its queue is not paused, its limits have
                        units left
{open to worker}        the same, and worker `w` may claim from it
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
{best of lane}          joins `best`, the most urgent jobs of each row `wanted`, and locks them
{picked columns}        the columns of `best`
{still open}            if :unread, lane `wanted` is open and the worker enabled; if :only, it is the only lane
{taken} {in taken}      the picked jobs are no longer claimable: on PostgreSQL their rows of holdfast_ready are deleted
{found:ids}             the same for the jobs :ids
{lane number}           a number that no other lane has
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from holdfast.lifecycle import BIT, Actor, State
from holdfast.lifecycle.machine import read_moves
from holdfast.lifecycle.states import CANON
from holdfast.model.history import ATTEMPT_COLUMNS, EVENT_COLUMNS
from holdfast.model.job import COLUMNS, LEASE_COLUMNS
from holdfast.model.key import KEY_COLUMNS
from holdfast.model.summary import SUMMARY_COLUMNS
from holdfast.model.worker import WORKER_COLUMNS
from holdfast.store.advisory_locks import NAMESPACE
from holdfast.store.queries import Query

POSTGRES, SQLITE = "postgres", "sqlite"

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

# The time of the statement, not of the transaction; usable as an index condition.
_POSTGRES_NOW = "coalesce(:now::timestamptz, statement_timestamp())"

_MARKER = re.compile(r"\{([^{}]*)\}")
_PARAM = re.compile(r"(?<![:\w]):([a-z_]+(?:\.\d+)?)")
# The worker stays, as that of the last lease. The event of the claim has the rest, which would make the row longer.
_LEASE_ENDED = "lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL"
_CANON = read_moves(CANON)


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
        steps = ",\n".join([*([first[1]] if first else []), moved, *_history(query)])
        enough = " LIMIT 1" if query.plain and (query.gives or "").startswith("minimal") else ""  # all rows or none
        text = f"WITH {steps}\nSELECT {', '.join(columns_of(query))} FROM moved{enough}"
    names = tuple(dict.fromkeys(_PARAM.findall(text)))
    if query.single and dialect == SQLITE:
        return Statement(_PARAM.sub("?", text), tuple(_PARAM.findall(text)), _times(query))
    if dialect == POSTGRES:
        text = _PARAM.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    return Statement(text, names, _times(query))


def _expand(query: Query, text: str, dialect: str, limit: int | None, filters: tuple[str, ...]) -> str:
    def expanded(found: re.Match[str]) -> str:
        word, _, rest = found[1].partition(":")
        if word == "filters":
            return " AND ".join(_MARKER.sub(expanded, FILTERS[name]) for name in filters) or "TRUE"
        if word == "limit":
            if limit is None:
                raise TypeError(f"query {query.name} needs a limit")
            return str(int(limit))
        if word == "moved":
            wanted = columns_of(query) + (_columns_of_history(query) if dialect == POSTGRES else ("rowid",))
            return ", ".join(f"holdfast_jobs.{name}" for name in dict.fromkeys(wanted))
        if word in _HOOKED:
            return _MARKER.sub(expanded, _HOOKED[word](query.mine, rest))
        if word.startswith(("now+", "now-")):
            return _shifted_now(found[1][3], found[1][4:], dialect)
        if word == "rows" and query.single:
            return _postgres_row(rest) if dialect == POSTGRES else _sqlite_row(rest)
        marker = _SHARED[word] if word in _SHARED else _DIALECT[word][dialect == SQLITE]
        return _MARKER.sub(expanded, marker if isinstance(marker, str) else marker(rest))

    return _MARKER.sub(expanded, text)


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
    sources, targets = _moves_named(query.move)
    known: dict[str, str | None] = {"version": None}  # only used for created jobs
    known |= {"came_from": sources[0].value} if len(sources) == 1 else {}
    known |= {"state": targets[0].value} if len(targets) == 1 else {}
    return known | ({"reason": None} if _NO_REASON.search(query.text) else {})


_FIRST = re.compile(r"WITH (.*?)\n(?=UPDATE )", re.DOTALL)  # the CTEs of a query
_WORD = re.compile(r"(?<![:\w])[a-z_]+")  # not the name of a parameter


@lru_cache(maxsize=256)
def _history(query: Query) -> tuple[str, ...]:
    """PostgreSQL writes jobs, events and lists of jobs in one statement; for SQLite see `history_afterwards`.

    What is the same for all rows is not read from them."""
    same = {name: "NULL" if value is None else f"'{value}'" for name, value in known_values(query).items()}
    same.pop("version", None)
    same |= {"moved_by": ":actor", "updated_at": _POSTGRES_NOW}
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


_READY = (
    "INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) "
    "SELECT coalesce(key_lane, lane), priority, needs IS NOT NULL, id, run_at FROM moved WHERE due"
)
_SAME_IN_NEW = {"attempt": "0", "epoch": "0", "reason": "NULL"}
_SAME_IN_PLAIN = {"tenant": ":tenant", "state": f"'{State.QUEUED}'"}
_PLAIN_READY = (
    "INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) "
    f"SELECT :lane, 0, FALSE, id, {_POSTGRES_NOW} FROM moved"
)
_BATCH = (
    "INSERT INTO holdfast_claim_batches (claimed_at, expires_at, ids) "
    f"SELECT {_POSTGRES_NOW}, min(lease_expires_at), array_agg(id) FROM moved HAVING count(*) > 0"
)


def _columns_of_history(query: Query) -> tuple[str, ...]:
    named = {word for step in _history(query) for word in _WORD.findall(step.partition("SELECT")[2])}
    return tuple(name for name in HISTORY_COLUMNS if name in named)


@dataclass(frozen=True)
class Insert:
    """One event per moved row. `values` by column: columns of that row, or literals."""

    table: str
    values: dict[str, str]
    where: str = "TRUE"

    def sql(self, source: str, which: str) -> str:
        selected = f"SELECT {', '.join(self.values.values())} FROM {source} WHERE {which} AND {self.where}"
        return f"INSERT INTO {self.table} ({', '.join(self.values)}) {selected}"


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


# -- markers ---------------------------------------------------------------------------------------------------


def _moves_named(wanted: str) -> tuple[list[State], list[State]]:
    """The source and target states of `claim`, `fail>dead` or `cancel by client`, in stable order."""
    words, _, actor = wanted.partition(" by ")
    verb, _, target = words.partition(">")
    moves = [
        move
        for move in _CANON
        if move.verb == verb and (not target or move.target == target) and (not actor or Actor(actor) in move.actors)
    ]
    if not moves:
        raise KeyError(f"no move is called {wanted!r}")
    return list(dict.fromkeys(m.source for m in moves)), list(dict.fromkeys(m.target for m in moves))


def _from(wanted: str) -> str:
    sources, _ = _moves_named(wanted)
    literals = [f"'{state}'" for state in sources]
    return f"= {literals[0]}" if len(literals) == 1 else f"IN ({', '.join(literals)})"


def _to(wanted: str) -> str:
    _, targets = _moves_named(wanted)
    if len(targets) != 1:
        raise KeyError(f"{wanted!r} can lead to {targets}; say which")
    return f"'{targets[0]}'"


def _bit(pair: str) -> str:
    source, _, target = pair.partition(">")
    return str(BIT[State(source), State(target)])


def _mine(extensions: tuple[str, ...], alias: str) -> str:
    table = alias or "holdfast_jobs"
    if not extensions:
        return f"{table}.needs IS NULL"
    lacking = f"SELECT 1 FROM {{items:{table}.needs}} AS need WHERE need.value NOT IN ({_names(extensions)})"
    return f"{table}.needs IS NOT NULL AND NOT EXISTS ({lacking})"


def _mine_or_plain(extensions: tuple[str, ...], alias: str) -> str:
    plain = _mine((), alias)
    return f"({plain} OR {_mine(extensions, alias)})" if extensions else plain


def _mine_or_freed(extensions: tuple[str, ...], _: str) -> str:
    """A finished row never changes, so the current hooks of its type are checked as well."""
    still = "SELECT value FROM {items:t.needs} AS still"
    same_type = "t.name = holdfast_jobs.type"
    freed = f"EXISTS (SELECT 1 FROM holdfast_job_types AS t WHERE {same_type} AND need.value NOT IN ({still}))"
    lacking = f"SELECT 1 FROM {{items:holdfast_jobs.needs}} AS need WHERE NOT {freed}"
    if not extensions:
        return f"(holdfast_jobs.needs IS NULL OR NOT EXISTS ({lacking}))"
    return f"holdfast_jobs.needs IS NOT NULL AND NOT EXISTS ({lacking} AND need.value NOT IN ({_names(extensions)}))"


def _names(extensions: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in extensions)  # identifiers, validated by `Extension`


def _not_held_back(extensions: tuple[str, ...], verb: str) -> str:
    """Checked only for jobs that need hooks: the others have no failed hooks."""
    if not extensions:
        return "TRUE"
    failed = "SELECT 1 FROM holdfast_hook_failures AS failed WHERE failed.job_id = holdfast_jobs.id"
    return f"NOT EXISTS ({failed} AND failed.verb = '{verb}' AND failed.next_at > {{now}})"


def _lacked(extensions: tuple[str, ...], _: str) -> str:
    if not extensions:
        return "TRUE"
    had = "SELECT value FROM {items:known.needs} AS had"
    return f"EXISTS (SELECT 1 FROM {{items:t.needs}} AS need WHERE need.value NOT IN ({had}))"


def _mine_or_plain_head(extensions: tuple[str, ...], _: str) -> str:
    """The row `head` of holdfast_ready: its job needs no hooks, or only those of this process."""
    if not extensions:
        return "NOT head.hooked"
    mine = _mine(extensions, "mine")
    return f"(NOT head.hooked OR EXISTS (SELECT 1 FROM holdfast_jobs AS mine WHERE mine.id = head.id AND {mine}))"


def _next_due(extensions: tuple[str, ...], _: str) -> str:
    """The least time of the jobs that wait for one."""
    mine = _mine_or_plain(extensions, "holdfast_jobs")
    first = "SELECT parked_at FROM holdfast_jobs WHERE parked = '{}' AND {} ORDER BY parked_at LIMIT 1"
    firsts = " UNION ALL ".join(f"SELECT ({first.format(parked, mine)}) AS at" for parked in ("waiting", "retrying"))
    return f"(SELECT min(at) FROM ({firsts}) AS firsts)"


_HOOKED: dict[str, Callable[[tuple[str, ...], str], str]] = {
    "mine": _mine,
    "mine or plain": _mine_or_plain,
    "mine or freed": _mine_or_freed,
    "mine or plain head": _mine_or_plain_head,
    "next due": _next_due,
    "not held back": _not_held_back,
    "lacked": _lacked,
}


def _job_columns() -> str:
    """The lease of a job that is not running is the last one: it does not count."""
    held = dict.fromkeys(("lease_worker", "lease_instance", "lease_token", "claimed_at"), "state = 'running'")
    shown = {name: f"CASE WHEN {when} THEN {name} END AS {name}" for name, when in held.items()}
    shown["last_worker"] = "CASE WHEN state <> 'running' THEN lease_worker END AS last_worker"
    return ", ".join(shown.get(name, name) for name in COLUMNS)


# The lanes with claimable jobs in the order of their ids, one index probe each, up to the limit.
def _walk(after: str) -> str:
    begin, step = ("0", "walk.lane") if after == "zero" else (f":{after}", _STEP)
    return (
        "walk(lane, nth) AS (\n"
        f"    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > {begin}\n"
        "     UNION ALL\n"
        f"    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > {step}), walk.nth + 1\n"
        "      FROM walk\n"
        "     WHERE walk.lane IS NOT NULL AND walk.nth < {limit}\n"
        ")"
    )


def _keyed(after: str) -> str:
    begin = "0" if after == "zero" else f":{after}"
    first = "SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane >"
    return (
        "keyed(lane, nth) AS (\n"
        f"    SELECT ({first} {begin}), 1\n"
        "     UNION ALL\n"
        f"    SELECT ({first} keyed.lane), keyed.nth + 1\n"
        "      FROM keyed\n"
        "     WHERE keyed.lane IS NOT NULL AND keyed.nth < {limit}\n"
        ")"
    )


# Not a join: it would read all keyed lanes.
_HAS_TURNS = "EXISTS (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = {} AND k.turn_at <= {{now}} LIMIT 1 OFFSET 0)"
# If more lanes have turns than the limit, those of the queues and types that are asked for are looked up as well.
_LISTED_KEYS = (
    "listed AS (\n    SELECT keyed.lane FROM keyed\n     UNION\n    SELECT matching.id\n"
    "      FROM (SELECT l.id FROM holdfast_lanes l\n"
    "             WHERE EXISTS (SELECT 1 FROM keyed WHERE keyed.nth = {limit} AND keyed.lane IS NOT NULL)\n"
    "               AND {any:queues l.queue text} AND {any:types l.type text} AND {has turns:l.id}\n"
    "             ORDER BY l.id LIMIT {limit}) AS matching\n)"
)


def _levels(asked: str) -> str:
    """One index probe for each priority of a lane, from the one that is asked for."""
    return (
        "levels(lane, priority, nth) AS (\n"
        f"    SELECT {asked}.lane, {asked}.priority, 1 FROM {{rows:{asked}(lane bigint, priority smallint)}}\n"
        "     UNION ALL\n"
        "    SELECT levels.lane, (SELECT max(r.priority) FROM holdfast_ready r "
        "WHERE r.lane = levels.lane AND r.priority < levels.priority), levels.nth + 1\n"
        "      FROM levels\n"
        "     WHERE levels.priority IS NOT NULL AND levels.nth < {limit}\n"
        ")"
    )


_ANY_KEYED = "EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NOT NULL)"
_NOT_PAUSED = (
    "NOT EXISTS (SELECT 1 FROM holdfast_queues q "
    "WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)"
)
_LACKED = "EXISTS (SELECT 1 FROM {items:l.%s} AS i WHERE i.value NOT IN (SELECT value FROM {items:%s.offers} AS o))"
_OPEN_LANE = f"{{any:queues l.queue text}} AND {{any:types l.type text}} AND {_NOT_PAUSED} AND NOT {{blocked:l}}"
_OPEN_TO_WORKER = (
    "{open lane} AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:w.tenants} AS t)) "
    f"AND NOT {_LACKED % ('requires', 'w')}"
)
_WAITS = (
    f"CASE WHEN {_LACKED % ('prefers', 'w')} AND EXISTS (SELECT 1 FROM holdfast_workers other WHERE other.enabled "
    "AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:other.tenants} AS t)) "
    "AND other.last_heartbeat_at >= {now-2 * other.heartbeat_seconds} AND other.liveness <> 'offline' "
    f"AND NOT {_LACKED % ('prefers', 'other')} AND NOT {_LACKED % ('requires', 'other')} "
    "AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id)) "
    "THEN l.defer_seconds ELSE 0 END"
)
LIMITED_BY = ("type", "queue", "tenant")  # the columns of a lane that have limits of their own
ROUNDING = 1e-6  # of tokens; and of seconds: times are rounded to microseconds


def _limits_of(lane: str) -> str:
    own = " UNION ALL ".join(f"SELECT '{kind}:' || {lane}.{kind} AS name, 1 AS units" for kind in LIMITED_BY)
    named = f"SELECT p.key, CAST(p.value AS integer) FROM {{pairs:{lane}.limits}} AS p"
    return f"FROM ({own} UNION ALL {named}) AS wanted JOIN holdfast_limits m ON m.name = wanted.name"


def _limited(lane: str) -> str:
    return f"(EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 {_limits_of(lane)}))"


def _blocked(lane: str) -> str:
    used = "(SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name)"
    return (
        f"(EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 {_limits_of(lane)} "
        "LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name "
        f"WHERE m.concurrency < wanted.units + {used} "
        f"OR {{least}}(wanted.units, m.burst) > {{tokens:m}} + {ROUNDING} * (1 + m.rate)))"
    )


def _next_tokens() -> str:
    """Of each lane the limit that has tokens last, of all lanes the one that has them first."""
    missing = "{least}(wanted.units, m.burst) - {tokens:m}"
    of_lane = (
        f"SELECT (SELECT max(({missing}) / m.rate) {_limits_of('l')} "
        "LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name "
        f"WHERE m.rate > 0 AND {missing} > {ROUNDING} * (1 + m.rate)) AS seconds FROM {{}} AS lanes "
        "JOIN holdfast_lanes l ON l.id = lanes.lane WHERE EXISTS (SELECT 1 FROM holdfast_limits)"
    )
    both = " UNION ALL ".join(of_lane.replace("{}", lanes) for lanes in ("walk", "keyed"))
    return f"(SELECT min(waits.seconds) FROM ({both}) AS waits)"


def _bucket(name: str) -> str:
    return "{turn:bucket}" if name == "turn" else name


def _limit_of_key(name: str) -> str:
    """That of one key comes before that of each key."""
    bucket = _bucket(name)
    return (
        f"LEFT JOIN holdfast_limits m ON m.name = CASE WHEN {bucket} IS NOT NULL THEN coalesce("
        f"(SELECT one.name FROM holdfast_limits one WHERE one.name = {bucket}), 'key:' || l.type) END "
        f"LEFT JOIN holdfast_limit_tokens k ON k.bucket = {bucket}"
    )


def _used_up(name: str) -> str:
    used = f"(SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = {_bucket(name)})"
    return f"coalesce(m.concurrency <= {used}, FALSE)"


def _full_key(name: str) -> str:
    return f"({_used_up(name)} OR coalesce({{tokens:m}} + {ROUNDING} * (1 + m.rate) < 1, FALSE))"


_NEXT_TURN = (
    "(SELECT min((SELECT min(k.turn_at) FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at > {now})) "
    "FROM keyed)"
)
_TOKENS = "{{least}}({0}.burst, coalesce(k.tokens + {0}.rate * {{seconds since:k.filled_at}}, {0}.burst))"
_STEP = "CASE WHEN :by_tenant THEN walk.lane | 4294967295 ELSE walk.lane END"
_BEST = (
    "WHERE r.lane = wanted.lane AND r.priority BETWEEN wanted.floor AND wanted.ceiling "
    "AND (r.run_at <= {now-wanted.waits} OR r.run_at > {now+5}) "
    "AND holdfast_jobs.attempt < holdfast_jobs.max_attempts AND {mine} AND {still open}"
)
# A claim that has not read the lanes now, but a moment ago, checks that they are still open and, if there was only one,
# that it still is the only one.
_STILL_OPEN = (
    "(NOT :unread OR (SELECT enabled FROM holdfast_workers WHERE id = :worker) AND NOT EXISTS (SELECT 1 "
    "FROM holdfast_lanes l WHERE l.id = wanted.lane AND ({limited:l} OR NOT {not paused}))) "
    "AND (CAST(:only AS bigint) IS NULL OR :only = (SELECT min(lane) FROM holdfast_ready WHERE lane > 0) "
    "AND :only = (SELECT max(lane) FROM holdfast_ready) AND NOT {any keyed})"
)
_BEST_ORDER = "ORDER BY r.priority DESC, r.id LIMIT"
_TURN_COLUMNS = ("key_lane", "bucket", "turn_at")
_TURNS = (
    f"SELECT {', '.join(_TURN_COLUMNS)} FROM holdfast_key_lanes k "
    "WHERE k.lane = listed.lane AND k.turn_at <= {now} AND NOT EXISTS (SELECT 1 FROM holdfast_key_lanes newer "
    "WHERE newer.key_lane = k.key_lane AND newer.turn_at > k.turn_at AND newer.turn_at <= {now}) ORDER BY k.turn_at"
)


# The text of a marker; a function gets what follows the colon.
_Text = str | Callable[[str], str]

_SHARED: dict[str, _Text] = {
    "from": _from,
    "to": _to,
    "bit": _bit,
    "lease ended": _LEASE_ENDED,
    "running": "holdfast_jobs.state = 'running'",
    "walk": _walk,
    "keyed": _keyed,
    "listed": lambda _: _LISTED_KEYS,
    "levels": _levels,
    "turns": "(SELECT count(*) FROM (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = {0} AND k.turn_at <= {{now}} "
    "LIMIT 100) AS first)".format,
    "any keyed": _ANY_KEYED,
    "has turns": _HAS_TURNS.format,
    "open lane": _OPEN_LANE,
    "open to worker": _OPEN_TO_WORKER,
    "not paused": _NOT_PAUSED,
    "waits of lane": _WAITS,
    "limited": _limited,
    "blocked": _blocked,
    "tokens": _TOKENS.format,
    "tokens in": "CASE WHEN {0}.rate > 0 THEN {{greatest}}(0, (1 - {{tokens:{0}}}) / {0}.rate) END".format,
    "next turn": _NEXT_TURN,
    "next tokens": _next_tokens(),
    "limit of key": _limit_of_key,
    "used up": _used_up,
    "full key": _full_key,
    "lane of": "coalesce((SELECT k.lane FROM holdfast_key_lanes k WHERE k.key_lane = {0} LIMIT 1), {0})".format,
    "still open": _STILL_OPEN,
    "job": _job_columns(),
    "summary": ", ".join(SUMMARY_COLUMNS),
    "event": ", ".join(EVENT_COLUMNS),
    "attempt": ", ".join(ATTEMPT_COLUMNS),
    "worker": ", ".join(WORKER_COLUMNS),
    "key": ", ".join(KEY_COLUMNS),
}


def _shifted_now(sign: str, seconds: str, dialect: str) -> str:
    if dialect == POSTGRES:
        return f"({_POSTGRES_NOW} {sign} ({seconds}) * interval '1 second')"
    return f"(:now {sign} CAST(({seconds}) * 1000000 AS INTEGER))"


def _columns(rows: str) -> tuple[str, list[tuple[str, str]]]:
    name, _, listed = rows.partition("(")
    pairs = [column.split() for column in listed.rstrip(")").split(",")]
    return name, [(column, kind) for column, kind in pairs]


def _times(query: Query) -> tuple[tuple[str, int], ...]:
    tables = [
        _columns(" ".join(found[5:].split())) for found in _MARKER.findall(query.text) if found.startswith("rows:")
    ]
    return tuple(
        (name, place) for name, columns in tables for place, (_, kind) in enumerate(columns) if kind == "timestamptz"
    )


def _postgres_rows(rows: str) -> str:
    name, columns = _columns(rows)
    arrays = ", ".join(f":{name}.{place}::{kind}[]" for place, (_, kind) in enumerate(columns))
    return f"unnest({arrays}) AS {name}({', '.join(column for column, _ in columns)})"


def _postgres_row(rows: str) -> str:
    """A single row needs no arrays and is inlined by the planner: this halves the cost of a small statement."""
    name, columns = _columns(rows)
    values = ", ".join(f":{name}.{place}::{kind} AS {column}" for place, (column, kind) in enumerate(columns))
    return f"(SELECT {values}) AS {name}"


def _sqlite_rows(rows: str) -> str:
    name, columns = _columns(rows)
    picked = ", ".join(f"value->>{place} AS {column}" for place, (column, _) in enumerate(columns))
    return f"(SELECT {picked} FROM json_each(:{name})) AS {name}"


def _sqlite_row(rows: str) -> str:
    """A single row is bound value by value: to write and to parse JSON would cost as much as the insert of the row."""
    name, columns = _columns(rows)
    values = ", ".join(f":{name}.{place} AS {column}" for place, (column, _) in enumerate(columns))
    return f"(SELECT {values}) AS {name}"


def _postgres_in(wanted: str) -> str:
    """An array keeps the planner on the primary key; a join depends on statistics that may not exist yet."""
    name, kind = wanted.split()
    return f"= ANY(:{name}::{kind}[])"


def _postgres_any(wanted: str) -> str:
    name, column, kind = wanted.split()
    return f"(:{name}::{kind}[] IS NULL OR {column} = ANY(:{name}::{kind}[]))"


def _sqlite_any(wanted: str) -> str:
    name, column, _ = wanted.split()
    return f"(:{name} IS NULL OR {column} IN (SELECT value FROM json_each(:{name})))"


# Set by the statement itself, so that it also works with autocommit. The subquery runs once.
_LOCK_TIMEOUT = (
    "(SELECT set_config('lock_timeout', coalesce(:lock_timeout::text, current_setting('lock_timeout')), TRUE))"
    " IS NOT NULL"
)

# Positions are transaction ids; higher if the job's last event has a higher one: see `{next version}`. A reader stays
# below the oldest open transaction, so it has not passed what that transaction writes, at its id or above.
_POSTGRES_POS = "(SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)"
_POSTGRES_HORIZON = "(SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base FROM holdfast_event_log)"
_POSTGRES_CEILING = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base FROM holdfast_event_log)"


def _log_end(greatest: str) -> str:
    return (
        f"{greatest}(coalesce((SELECT pos FROM holdfast_events ORDER BY pos DESC LIMIT 1), 0), "
        "coalesce((SELECT max(pos) FROM holdfast_readers), 0), (SELECT pruned FROM holdfast_event_log))"
    )


# On PostgreSQL, and on SQLite.
_DIALECT: dict[str, tuple[_Text, _Text]] = {
    "now": (_POSTGRES_NOW, ":now"),
    "skip_locked": ("FOR UPDATE SKIP LOCKED", ""),
    "skip_locked of jobs": ("FOR UPDATE OF holdfast_jobs SKIP LOCKED", ""),
    "locked row": ("FOR UPDATE", ""),
    "locked": ("FOR UPDATE OF holdfast_jobs", ""),
    "lock_timeout": (_LOCK_TIMEOUT, "coalesce(:lock_timeout, '') IS NOT NULL"),
    # A random part for the claim and a part for each job: a random number for each row costs as much as its event.
    "token": (
        "(:token_prefix || lpad(to_hex(uuid_hash_extended(holdfast_jobs.id, 0) & 281474976710655), 12, '0'))::uuid",
        ":token_prefix || substr(holdfast_new_token(), -12)",
    ),
    "rows": (_postgres_rows, _sqlite_rows),
    "in": (_postgres_in, lambda wanted: f"IN (SELECT value FROM json_each(:{wanted.split()[0]}))"),
    "head of": (
        "LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = {} "
        "ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE".format,
        "LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = {} "
        "ORDER BY r.priority DESC, r.id LIMIT 1)".format,
    ),
    "head of key lane": (
        "LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = turn.key_lane "
        "ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE",
        "LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r "
        "WHERE r.lane = turn.value->>0 ORDER BY r.priority DESC, r.id LIMIT 1)",
    ),
    "head of level": (
        "JOIN LATERAL (SELECT id, run_at FROM holdfast_ready WHERE lane = levels.lane AND priority = levels.priority "
        "ORDER BY id LIMIT 1) AS head ON TRUE",
        "JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = levels.lane "
        "AND r.priority = levels.priority ORDER BY r.id LIMIT 1)",
    ),
    "turns of lane": (
        f"LEFT JOIN LATERAL ({_TURNS} LIMIT :most) AS turn ON l.id IS NOT NULL",
        f"LEFT JOIN json_each((SELECT json_group_array(json_array({', '.join(_TURN_COLUMNS)})) FROM ({_TURNS} "
        "LIMIT :most))) AS turn ON l.id IS NOT NULL",
    ),
    "turn": ("turn.{}".format, lambda column: f"turn.value->>{_TURN_COLUMNS.index(column)}"),
    "rows of key lanes": (
        "ctid = ANY (ARRAY(SELECT ctid FROM holdfast_key_lanes WHERE key_lane = ANY (:{}::bigint[]) "
        "FOR UPDATE SKIP LOCKED))".format,
        "key_lane IN (SELECT value FROM json_each(:{}))".format,
    ),
    "pairs": ("json_each_text({}::json)".format, "json_each({})".format),
    "least": ("least", "min"),
    "greatest": ("greatest", "max"),
    "seconds since": (
        "greatest(0, extract(epoch FROM {{now}} - {}))::float8".format,
        "max(0, ({{now}} - {}) / 1000000.0)".format,
    ),
    "try lock": (
        f"pg_try_advisory_xact_lock(hashtextextended('{NAMESPACE}:limit:' || {{}}, 0))".format,
        "TRUE",
    ),
    "picked columns": ("best.place, best.id", "best.value AS id"),
    "best of lane": (
        "CROSS JOIN LATERAL (SELECT place, id FROM (SELECT r.ctid AS place, r.id FROM holdfast_ready r "
        f"JOIN holdfast_jobs ON holdfast_jobs.id = r.id {_BEST} AND holdfast_jobs.due {_BEST_ORDER} {{limit}} "
        "FOR UPDATE OF holdfast_jobs SKIP LOCKED) AS first LIMIT wanted.most) AS best LIMIT :most",
        "JOIN json_each((SELECT json_group_array(id) FROM (SELECT r.id FROM holdfast_ready r "
        f"JOIN holdfast_jobs ON holdfast_jobs.id = r.id {_BEST} {_BEST_ORDER} :most))) AS best "
        "ON best.key < wanted.most",
    ),
    # The lock on a job covers its row of holdfast_ready.
    "taken": (
        ", taken AS (\n    DELETE FROM holdfast_ready WHERE ctid = ANY (ARRAY(SELECT place FROM picked))\n)",
        "",
    ),
    "found": (
        "WITH found AS (\n"
        "    DELETE FROM holdfast_ready AS r USING holdfast_jobs AS j\n"
        "     WHERE j.id = ANY (:{}::uuid[])\n"
        "       AND r.lane = coalesce(j.key_lane, j.lane) AND r.priority = j.priority AND r.id = j.id\n"
        ")\n".format,
        "",
    ),
    "in taken": ("= ANY (ARRAY(SELECT id FROM picked))", "IN (SELECT id FROM picked)"),
    "lane number": (
        "nextval('holdfast_lane_numbers')",
        "(SELECT coalesce(max(id & 4294967295), 0) + 1 FROM holdfast_lanes)",
    ),
    "drop stale": ("holdfast_drop_stale_ready(:{})".format, "0 * coalesce(:{}, 0)".format),
    "stale batches": ("EXISTS (SELECT 1 FROM holdfast_claim_batches WHERE claimed_at <= {now-1})", "FALSE"),
    "drop batches": ("holdfast_drop_claim_batches({now-1}, {limit})", "0"),
    "may be expired": (
        "(SELECT * FROM holdfast_jobs WHERE state = 'running' AND id = ANY (ARRAY(SELECT unnest(ids) "
        "FROM holdfast_claim_batches WHERE expires_at <= {now} OR claimed_at > {now})))",  # or the clock was set back
        "holdfast_running",
    ),
    "some running": (
        "EXISTS (SELECT 1 FROM (SELECT ids FROM holdfast_claim_batches ORDER BY claimed_at DESC) AS newest "
        "WHERE EXISTS (SELECT 1 FROM holdfast_jobs AS running WHERE running.id = ANY (newest.ids) "
        "AND running.state = 'running' AND {} LIMIT 1 OFFSET 0))".format,
        "EXISTS (SELECT 1 FROM holdfast_running AS running WHERE {})".format,
    ),
    "in picked": ("= ANY(ARRAY(SELECT id FROM picked))", "IN (SELECT id FROM picked)"),
    "in ripe": ("= ANY(ARRAY(SELECT id FROM ripe))", "IN (SELECT id FROM ripe)"),
    "any": (_postgres_any, _sqlite_any),
    "items": ("json_array_elements_text({}::json)".format, "json_each({})".format),
    "horizon": (_POSTGRES_HORIZON, str(2**63 - 1)),
    "beyond": (
        f"{_POSTGRES_HORIZON} + 1",
        "(SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_events'), 0) + 2)",
    ),
    "ceiling": (_POSTGRES_CEILING, str(2**63 - 1)),
    "log end": (_log_end("greatest"), _log_end("max")),
    "pos": (_POSTGRES_POS, "0"),
    "pos column": ("pos, ", ""),
    "pos of said": (
        f"greatest({_POSTGRES_POS}, (SELECT max(pos) FROM holdfast_events WHERE job_id = said.id)), ",
        "",
    ),
    "parts of jobs": (
        "(SELECT json_agg(json_build_object('name', name, 'status', status, 'percent', percent, 'total', total, "
        "'done', done) ORDER BY place, name)::text "
        "FROM holdfast_parts WHERE holdfast_parts.job_id = holdfast_jobs.id)",
        "(SELECT nullif(json_group_array(json_object('name', name, 'status', status, 'percent', percent, 'total', "
        "total, 'done', done)), '[]') "
        "FROM (SELECT * FROM holdfast_parts WHERE holdfast_parts.job_id = holdfast_jobs.id ORDER BY place, name))",
    ),
    "next version": (
        f"version = holdfast_jobs.version + 1, moved_by = :actor, pos = greatest(holdfast_jobs.pos, {_POSTGRES_POS})",
        "version = holdfast_jobs.version + 1, moved_by = :actor",
    ),
}
