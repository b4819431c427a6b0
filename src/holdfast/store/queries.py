"""The loader of the `.sql` files. A query is SQL with `:name` parameters and a fixed set of `{markers}`.

    -- name: complete_jobs      its name in the engine
    -- move: complete           it changes states: each row gets an event with this verb
    -- ends: succeeded          it also ends an execution: a row of `holdfast_attempts` with this outcome
    -- data: error              the column, or literal, that goes into the event's data
    -- gives: lease             it returns the columns of a lease
    -- (anything else)          a comment

`note:` writes an event without a change of state; `create` inserts jobs, and `plain` all or none of one kind, claimable
at once; `values` a single one, all of whose columns are parameters. `render` explains the markers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

_ROWS = re.compile(r"\{rows:(\w+)")
_BRACKETS = re.compile(r"\([^()]*\)")
_VERB = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CONNECT|BEGIN|COMMIT)\b")
_TABLE = re.compile(r"\b(?:(?<!DISTINCT )FROM|INTO|UPDATE|JOIN)\s+([a-z_]+)")
# A CTE of the query, or of {walk:after}.
_COMMON = re.compile(r"(?:(?:WITH|RECURSIVE|,)\s+|\{)([a-z_]+)(?:\([^()]*\))?(?: AS |:)")
_HEADER = re.compile(r"--\s*(name|move|note|ends|data|gives|create|plain|values)\b:?\s*(\w*|'[^']*')\s*")


@dataclass(frozen=True)
class Query:
    name: str
    text: str
    move: str | None = None
    note: str | None = None
    create: bool = False
    plain: bool = False
    values: bool = False
    ends: str | None = None
    data: str | None = None
    gives: str | None = None
    single: bool = False  # each of its row parameters has one row
    behind: bool = False  # it takes the jobs behind the one that was taken last
    mine: tuple[str, ...] = ()  # the extensions of this process: select only jobs that need their hooks

    def __hash__(self) -> int:
        """Every statement looks up its rendered text: the fields are hashed once."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.text, self.gives, self.single, self.behind, self.mine))

    @cached_property
    def recorded(self) -> bool:
        """It writes events."""
        return bool(self.move or self.note or self.create)

    @cached_property
    def minimal(self) -> Query:
        """The same query, returning only the required columns."""
        return replace(self, gives=f"minimal {self.gives or 'move'}")

    @cached_property
    def observed(self) -> Query:
        """The same query, returning also the columns that observers of moves need."""
        return replace(self, gives=f"observed {self.gives or 'move'}")

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The row parameters."""
        return tuple(_ROWS.findall(self.text))

    @cached_property
    def operation(self) -> str:
        """`select`, `insert`, `update` or `delete`, by the outermost statement; for other steps of a store, their
        name."""
        found = _VERB.search(self._outer)
        return found[1].lower() if found else "other"

    @cached_property
    def table(self) -> str:
        """The first table of the outermost statement; else the first in any subquery."""
        made = _COMMON.findall(self.text)
        named = [*_TABLE.findall(self._outer), *_TABLE.findall(self.text)]
        return next((name for name in named if name not in made), "none")

    @cached_property
    def _outer(self) -> str:
        """The text without everything in parentheses."""
        text, left = self.text, 1
        while left:
            text, left = _BRACKETS.subn("", text)
        return text

    @lru_cache  # noqa: B019  queries live as long as the process
    def with_hooks(self, extensions: tuple[str, ...]) -> Query:
        """The same query for jobs that need hooks, all of them of these extensions."""
        return replace(self, mine=extensions)

    @cached_property
    def behind_last(self) -> Query:
        """A claim of jobs of one priority behind the job `after`, which does not walk over those before it."""
        return replace(self, behind=True)

    @cached_property
    def for_one(self) -> Query:
        """The same query for single rows, which need no array parameters."""
        return replace(self, single=True)


class Queries:
    """Queries as attributes: `q.claim_jobs`."""

    def __init__(self, queries: dict[str, Query]) -> None:
        self._queries = queries

    def __getattr__(self, name: str) -> Query:
        try:
            return self._queries[name]
        except KeyError:
            near = get_close_matches(name, self._queries)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise AttributeError(f"no query is called {name!r}{hint}") from None

    def all(self) -> list[Query]:
        return list(self._queries.values())


def parse(source: str) -> list[Query]:
    sections = re.split(r"(?m)^(?=-- name:)", source)
    return [_parse_one(section) for section in sections if section.startswith("-- name:")]


def _parse_one(section: str) -> Query:
    header: dict[str, Any] = {}
    body: list[str] = []
    for line in section.strip().splitlines():
        found = _HEADER.fullmatch(line)
        if found and not body:
            header[found[1]] = found[1] in ("create", "plain", "values") or found[2]
        elif body or not line.startswith("--"):
            body.append(line)
    return Query(text="\n".join(body), **header)


def load(folder: Traversable) -> Queries:
    """The queries of all files in a folder. `ValueError`: a file has none, or two have the same name."""
    found: dict[str, Query] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        queries = parse(file.read_text("utf-8")) if file.name.endswith(".sql") else None
        if queries == []:
            raise ValueError(f"sql/{file.name} has no query; each begins with a line -- name: NAME")
        for query in queries or ():
            if query.name in found:
                raise ValueError(f"two queries are called {query.name!r}")
            found[query.name] = query
    return Queries(found)


q = load(files("holdfast.store").joinpath("sql"))
