"""Guards against illegal transitions in the database: what each costs per job, and what it does not reject.

    python -m benchmarks.illegal_transitions [--store sqlite] [--quick]

Every way stands on the real table of jobs, in a database of its own, with 20 user-declared lifecycles; the jobs belong
to the last of them. Claim and complete by 100 are plain SQL, so that the rest of the engine hides no difference.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sqlite3
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg

from benchmarks.databases import Database, Host, host
from benchmarks.implementations import Implementation, raw_side
from benchmarks.measurement import Candidate, measure_in_turns
from benchmarks.operations import drain, filled
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, shown, write_results
from holdfast.lifecycle import BIT, Machine
from holdfast.lifecycle.default import DEFAULT
from holdfast.lifecycle.images import IMAGES

# Retries, but no cancel and no reject: what `images` has, under names that no schema file can know.
USERS = [
    Machine(
        f"user_{number}",
        words={str(state): word for state, word in IMAGES.words.items()},
        moves=[str(move) for move in IMAGES.moves],
    )
    for number in range(1, 21)
]
MINE = USERS[-1]
LIFECYCLES = [DEFAULT, *USERS]

_MOVED = "NEW.state <> OLD.state"
_FINISHED = "OLD.finished_at IS NOT NULL"


@dataclass(frozen=True)
class Way:
    """`when` is the refusing trigger's condition; `check` a constraint; `shipped` keeps the triggers of the schema."""

    name: str
    when: str = ""
    check: str = ""
    lookup: bool = False
    shipped: bool = False
    timing: str = "BEFORE"


def _literals(states: Iterable[str]) -> str:
    return ", ".join(f"'{state}'" for state in dict.fromkeys(states))


def _pairs(machine: Machine) -> str:
    """The pair of states is no transition of this lifecycle."""
    arms = [
        f"WHEN '{source}' THEN NEW.state NOT IN ({_literals(m.target for m in machine.moves if m.source is source)})"
        for source in dict.fromkeys(move.source for move in machine.moves)
    ]
    return f"CASE OLD.state {' '.join(arms)} ELSE TRUE END"


def _mask() -> str:
    arms = []
    for source in dict.fromkeys(a for a, _ in BIT):
        bits = " ".join(f"WHEN '{target}' THEN {bit}" for (a, target), bit in BIT.items() if a is source)
        arms.append(f"WHEN '{source}' THEN CASE NEW.state {bits} ELSE 0 END")
    return f"0 = OLD.moves & CASE OLD.state {' '.join(arms)} ELSE 0 END"


def _kept_pairs() -> str:
    arms = [
        f"came_from = '{source}' AND state IN ({_literals(target for a, target in BIT if a is source)})"
        for source in dict.fromkeys(a for a, _ in BIT)
    ]
    return f"came_from IS NULL OR {' OR '.join(arms)}"


_BY_LIFECYCLE = " ".join(f"WHEN '{machine.name}' THEN {_pairs(machine)}" for machine in LIFECYCLES)
_LOOK_UP = (
    "NOT EXISTS (SELECT 1 FROM legal_moves l"
    " WHERE l.lifecycle = OLD.lifecycle AND l.source = OLD.state AND l.target = NEW.state)"
)

WAYS = [
    Way("nothing"),
    Way("literal pairs", when=f"{_FINISHED} OR {_MOVED} AND {_pairs(DEFAULT)}"),
    Way(
        "literal pairs of each lifecycle",
        when=f"{_FINISHED} OR {_MOVED} AND CASE OLD.lifecycle {_BY_LIFECYCLE} ELSE TRUE END",
    ),
    Way("constraint on the kept state", check=_kept_pairs()),
    Way("bitmask on the row", when=f"{_FINISHED} OR {_MOVED} AND {_mask()}"),
    Way("bitmask on the row, looked at after", when=f"{_FINISHED} OR {_MOVED} AND {_mask()}", timing="AFTER"),
    Way("lookup in a table", lookup=True),
    Way("the schema's triggers before", shipped=True),
    Way("the schema's triggers after", shipped=True, timing="AFTER"),
]


# -- installing a way ------------------------------------------------------------------------------------------------


async def install(way: Way, database: Database) -> None:
    """Replace the triggers of the schema by this guard."""
    shipped = await _triggers(database)
    for name, _ in shipped:
        await database.run(f"DROP TRIGGER {name}" + (" ON holdfast_jobs" if database.dialect == "postgres" else ""))
    if way.shipped:
        for _, sql in shipped:
            await database.run(re.sub(r"(BEFORE|AFTER) UPDATE", f"{way.timing} UPDATE", sql))
    else:
        await _INSTALL[database.dialect](way, database)


async def _triggers(database: Database) -> list[tuple[str, str]]:
    if database.dialect == "postgres":
        sql = """SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger
                  WHERE tgrelid = 'holdfast_jobs'::regclass AND NOT tgisinternal AND tgtype & 16 <> 0"""
    else:
        sql = """SELECT name, sql FROM sqlite_master
                  WHERE type = 'trigger' AND tbl_name = 'holdfast_jobs' AND sql LIKE '% UPDATE %'"""
    return [(name, made) for name, made in await database.rows(sql)]


async def _install_postgres(way: Way, database: Database) -> None:
    if way.check:
        await database.run(f"ALTER TABLE holdfast_jobs ADD CONSTRAINT jobs_kept_pair CHECK ({way.check})")
    elif way.when or way.lookup:
        illegal = f"{_FINISHED} OR {_LOOK_UP}" if way.lookup else "TRUE"
        if way.lookup:
            await _make_legal_moves(database)
        await database.run(
            f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF {illegal} THEN RAISE EXCEPTION 'no such move'; END IF; RETURN NEW; END $$"
        )
        when = way.when or f"{_FINISHED} OR {_MOVED}"
        await database.run(
            f"CREATE TRIGGER refuse {way.timing} UPDATE ON holdfast_jobs FOR EACH ROW WHEN ({when})"
            " EXECUTE FUNCTION refuse()"
        )


async def _install_sqlite(way: Way, database: Database) -> None:
    if way.check:
        await _make_jobs_again(way.check, database)
    elif way.when or way.lookup:
        if way.lookup:
            await _make_legal_moves(database)
        when = way.when or f"{_FINISHED} OR {_MOVED} AND {_LOOK_UP}"
        await database.run(
            f"CREATE TRIGGER refuse {way.timing} UPDATE ON holdfast_jobs WHEN {when}"
            " BEGIN SELECT RAISE(ABORT, 'no such move'); END"
        )


async def _make_jobs_again(check: str, database: Database) -> None:
    """SQLite adds no constraint to a table that exists."""
    made = await database.rows(
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'holdfast_jobs' AND sql IS NOT NULL ORDER BY rowid"
    )
    [table, *others] = [sql for (sql,) in made]
    body, end, options = table.rpartition(")")
    await database.run("DROP TABLE holdfast_jobs")
    for sql in [f"{body}, CONSTRAINT jobs_kept_pair CHECK ({check}){end}{options}", *others]:
        await database.run(sql)


async def _make_legal_moves(database: Database) -> None:
    await database.run(
        "CREATE TABLE legal_moves (lifecycle text, source text, target text, PRIMARY KEY (lifecycle, source, target))"
    )
    rows = dict.fromkeys(
        f"('{machine.name}', '{move.source}', '{move.target}')" for machine in LIFECYCLES for move in machine.moves
    )
    await database.run(f"INSERT INTO legal_moves VALUES {', '.join(rows)}")


_INSTALL = {"postgres": _install_postgres, "sqlite": _install_sqlite}


# -- illegal statements ------------------------------------------------------------------------------------------

_ENDED = "due = NULL, finished_at = run_at"
ATTACKS = {
    "no lifecycle's": [
        f"UPDATE holdfast_jobs SET came_from = state, state = 'succeeded', {_ENDED} WHERE state = 'queued'"
    ],
    "not this one's": [
        f"UPDATE holdfast_jobs SET came_from = state, state = 'canceled', {_ENDED} WHERE state = 'queued'"
    ],
    "with a lie": [
        f"UPDATE holdfast_jobs SET came_from = 'running', state = 'succeeded', {_ENDED} WHERE state = 'queued'"
    ],
    "leave granted": [
        f"UPDATE holdfast_jobs SET moves = {DEFAULT.mask}, lifecycle = 'default' WHERE state = 'queued'",
        f"UPDATE holdfast_jobs SET came_from = state, state = 'canceled', {_ENDED} WHERE state = 'queued'",
    ],
    "after the end": ["UPDATE holdfast_jobs SET result = '1' WHERE state = 'succeeded'"],
    "end undone": [
        "UPDATE holdfast_jobs SET came_from = NULL, state = 'queued', due = TRUE, finished_at = NULL"
        " WHERE state = 'succeeded'"
    ],
}


async def attack(side: Implementation) -> dict[str, bool]:
    """Run illegal SQL: which statements does the database reject?"""
    await filled(side, jobs=2)
    await drain(side, jobs=1, by=1)
    return {name: await _refused(side.database, statements) for name, statements in ATTACKS.items()}


async def _refused(database: Database, statements: list[str]) -> bool:
    await database.run("BEGIN")
    try:
        for sql in statements:
            await database.run(sql)
    except (asyncpg.PostgresError, sqlite3.Error):
        return True
    else:
        return False
    finally:
        await database.run("ROLLBACK")


# -- measuring ----------------------------------------------------------------------------------------------------


async def compare(store: str, machine: Host, *, rounds: int, slices: int, jobs: int) -> list[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        sides: dict[str, Implementation] = {}
        for way in WAYS:
            database: Database = await stack.enter_async_context(machine.fresh())
            await install(way, database)
            sides[way.name] = raw_side(
                database,
                table="holdfast_jobs",
                ready="due AND lane = 1",
                also="came_from = state",
                lifecycle=MINE.name,
                moves=MINE.mask,
            )
        refusals = {name: await attack(side) for name, side in sides.items()}
        candidates = [
            Candidate(
                name,
                side.database,
                partial(filled, side, jobs=jobs * slices),
                partial(drain, side, jobs=jobs, by=100),
            )
            for name, side in sides.items()
        ]
        scores = await measure_in_turns(store, candidates, rounds=rounds, slices=slices)
    rows = [
        [
            name,
            f"{score.micros:.1f}",
            shown(score.cpu_micros, ".1f"),
            shown(score.wal_bytes, ",.0f"),
            *("refused" if refusals[name][kind] else "-" for kind in ATTACKS),
        ]
        for name, score in scores.items()
    ]
    header = ["claim+complete by 100", "us/job", "CPU us", "WAL bytes", *ATTACKS]
    print_table(await machine.version(), header, rows)
    return [{"way": name, "refuses": refusals[name], **told} for name, told in rounds_of(scores).items()]


async def measure(options: argparse.Namespace) -> None:
    stores = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            sizes = (
                {"rounds": 1, "slices": 1, "jobs": 100} if options.quick else {"rounds": 9, "slices": 10, "jobs": 1000}
            )
            stores[store] = await compare(store, machine, **sizes)
    write_results(options.results, "illegal_transitions", quick=options.quick, stores=stores)


def main(words: list[str] | None = None) -> None:
    asyncio.run(measure(arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)))


if __name__ == "__main__":
    main()
