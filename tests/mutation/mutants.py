"""Every guard of the core, removed one at a time: predicates of statements, constraints, arms of triggers.

A mutant is switched on by HOLDFAST_TEST_MUTANT in the environment of a test run; if that run stays green, nothing
guards the guard.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from holdfast.store import migrate
from holdfast.store.queries import Query, q

VARIABLE = "HOLDFAST_TEST_MUTANT"
DIALECTS = ("sqlite", "postgres")


@dataclass(frozen=True)
class Mutant:
    """`stores` are where it can show; `area` is the query or the part of the schema it is in."""

    name: str
    area: str
    stores: tuple[str, ...]
    switch_on: Callable[[], None]


def all_mutants() -> dict[str, Mutant]:
    found = [*_query_mutants(), *_schema_mutants()]
    return {mutant.name: mutant for mutant in found}


def switch_on_from_environment() -> None:
    if name := os.environ.get(VARIABLE):
        all_mutants()[name].switch_on()


# -- predicates of statements -------------------------------------------------------------------------------------


def _query_mutants() -> Iterator[Mutant]:
    for query in q.all():
        for number, (start, end) in enumerate(predicates(query.text)):
            shown = " ".join(query.text[start:end].split())
            yield Mutant(
                name=f"{query.name}/{number}: without {shown[:70]}",
                area=query.name,
                stores=DIALECTS,
                switch_on=_replacing_query(query, without(query.text, start, end)),
            )


_FIRST = {"WHERE": "WHERE TRUE", "ON": "ON TRUE"}
_OPENS = re.compile(r"\b(?:WHERE|AND|OR|(?<=\s)ON(?= [\w.]+ = ))\b")
_TOKEN = re.compile(r"[(),;\n]|\b(?:CASE|END|AND|OR|ORDER|GROUP|RETURNING|THEN|DO)\b|\Z")


def predicates(text: str) -> Iterator[tuple[int, int]]:
    """Where each WHERE, ON, AND and OR stands, with all that its brackets and CASEs span.

    Not the WHERE of an ON CONFLICT: without it there is no such index, and no statement.
    """
    for found in _OPENS.finditer(text):
        depth = 0
        for token in _TOKEN.finditer(text, found.end()):
            depth += {"(": 1, "CASE": 1, ")": -1, "END": -1}.get(token[0], 0)
            if depth < 0 or (depth == 0 and token[0] not in (")", "END")):  # closes something around it, or ends it
                if token[0] != "DO" and text[found.start() : token.start()].split() != ["WHERE", "TRUE"]:
                    yield found.start(), token.start()
                break


def without(text: str, start: int, end: int) -> str:
    return text[:start] + _FIRST.get(text[start:end].split(maxsplit=1)[0], "") + " " + text[end:]


def _replacing_query(query: Query, text: str) -> Callable[[], None]:
    def switch_on() -> None:
        q._queries[query.name] = replace(query, text=text)

    return switch_on


# -- constraints, indexes and arms of triggers ----------------------------------------------------------------------


def _schema_mutants() -> Iterator[Mutant]:
    for dialect in DIALECTS:
        [core] = migrate.migrations(dialect)
        for name, changed in _weaker_schemas(core.sql):
            yield Mutant(
                name=f"{dialect} schema: {name}",
                area="schema",
                stores=(dialect,),
                switch_on=_replacing_schema(dialect, changed),
            )


def _weaker_schemas(sql: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r",\n    (?:--.*\n    )*CONSTRAINT (\w+) CHECK ", sql):
        yield f"without constraint {found[1]}", sql[: found.start()] + sql[_closed(sql, found.end()) :]
    for found in re.finditer(r" CHECK (?=\((?:priority|percent|liveness|status)\b)", sql):
        yield (
            f"without check {sql[found.end() : found.end() + 40]!r}",
            sql[: found.start()] + sql[_closed(sql, found.end()) :],
        )
    for found in re.finditer(r"CREATE UNIQUE INDEX (\w+)", sql):
        yield f"{found[1]} not unique", sql[: found.start()] + f"CREATE INDEX {found[1]}" + sql[found.end() :]
    for found in re.finditer(r"WHEN '(\w+)' THEN (\d+)\b", sql):
        if int(found[2]) > 1 or found[1] == "queued":
            weaker = sql[: found.start(2)] + "-1" + sql[found.end(2) :]
            yield f"any row may move to {found[1]} as bit {found[2]}", weaker
    yield from _weaker_triggers(sql)


def _weaker_triggers(sql: str) -> Iterator[tuple[str, str]]:
    for found in _TRIGGER.finditer(sql):
        before, text, after = sql[: found.start()], found[0], sql[found.end() :]
        name = found[1] or found[2]
        if text.startswith("CREATE TRIGGER"):
            yield f"without trigger {name}", before + after
        for number, (start, end) in enumerate(predicates(text)):
            weaker = before + without(text, start, end) + after
            yield f"{name}/{number}: without {' '.join(text[start:end].split())[:60]}", weaker
        for arm in _FIRST_ARM.finditer(text):
            yield f"{name} without {arm[1]!r}", before + text[: arm.start(1)] + "FALSE" + text[arm.end(1) :] + after


_TRIGGER = re.compile(
    r"CREATE VIEW (\w+)[^;]*;"
    r"|CREATE (?:TRIGGER|FUNCTION) (\w+)(?:(?!CREATE )[\s\S])*?(?:\nEND;|\$\$;|FUNCTION \w+\(\);)"
)
_FIRST_ARM = re.compile(
    r"(OLD\.finished_at IS NOT NULL|NEW\.id <> OLD\.id|NEW\.epoch <> (?:0|OLD\.epoch(?: \+ CASE .* END)?))\n\s*OR "
)


def _closed(text: str, start: int) -> int:
    """Behind the bracket that opens at or after `start`."""
    depth = 0
    for place in range(text.index("(", start), len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    raise ValueError("a bracket is never closed")


def _replacing_schema(weakened: str, sql: str) -> Callable[[], None]:
    def switch_on() -> None:
        original = migrate.migrations

        def mutated(dialect: str, extensions: Iterable[migrate.Migratable] = ()) -> list[migrate.Migration]:
            found = original(dialect, extensions)
            return [replace(m, sql=sql) if dialect == weakened and m.extension == migrate.CORE else m for m in found]

        migrate.migrations = mutated

    return switch_on
