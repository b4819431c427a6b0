"""The SQL files of an extension: `schema/postgres/0001_x.sql`, `schema/sqlite/0001_x.sql` and `sql/x.sql`. They are
validated when an app includes the extension."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from holdfast.errors import Invalid
from holdfast.store.migrate import Migration, migrations, migrations_in
from holdfast.store.queries import Queries, load
from holdfast.store.render import render

DIALECTS = ("postgres", "sqlite")
_CREATED = re.compile(
    r"\bCREATE\s+(?:(?:OR\s+REPLACE|UNIQUE|UNLOGGED|VIRTUAL|FOREIGN|GLOBAL|LOCAL|TEMP|TEMPORARY|MATERIALIZED|RECURSIVE"
    r"|CONSTRAINT)\s+)*(TABLE|INDEX|VIEW|FUNCTION|PROCEDURE|TRIGGER|SEQUENCE|TYPE)\s+(?:CONCURRENTLY\s+)?"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?!ON\b)(?:\"?\w+\"?\s*\.\s*)?\"?(\w+)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


class ExtensionFiles:
    """Files in the package of the extension, or beside its module if that is in no package."""

    def __init__(self, extension: str, package: str, module_file: str) -> None:
        self.extension, self._package, self._module_file = extension, package, module_file

    def migrations(self, dialect: str) -> list[Migration]:
        folder = self._folder("schema", dialect)
        return migrations_in(folder, self.extension) if folder is not None else []

    @cached_property
    def queries(self) -> Queries:
        folder = self._folder("sql")
        try:
            return Queries({}) if folder is None else load(folder)
        except ValueError as error:
            raise self._invalid(str(error), "invalid_query") from None

    # -- validation -----------------------------------------------------------------------------------------------

    def check(self, others: Iterable[ExtensionFiles]) -> None:
        self._reject_misplaced()
        self._require_both()
        self._check_names(others)
        self._check_queries()

    def _reject_misplaced(self) -> None:
        """Files outside the folders of the two databases would be applied to neither."""
        folder = self._folder("schema")
        for each in folder.iterdir() if folder is not None else ():
            holds = each.is_dir() and any(file.name.endswith(".sql") for file in each.iterdir())
            if each.name.endswith(".sql") or (holds and each.name not in DIALECTS):
                known = " and ".join(f"schema/{dialect}" for dialect in DIALECTS)
                raise self._invalid(f"schema/{each.name} is for no database; migrations are in {known}")

    def _require_both(self) -> None:
        numbers = {dialect: {one.number: one.name for one in self.migrations(dialect)} for dialect in DIALECTS}
        for dialect, other in (DIALECTS, DIALECTS[::-1]):
            for number in sorted(numbers[other].keys() - numbers[dialect].keys()):
                raise self._invalid(
                    f"schema/{other} has {numbers[other][number]}.sql and schema/{dialect} has no {number:04}; each "
                    "database needs its own"
                )

    def _check_names(self, others: Iterable[ExtensionFiles]) -> None:
        taken = dict.fromkeys(_created_by(one for dialect in DIALECTS for one in migrations(dialect)), "Holdfast")
        taken |= {name: f"extension {each.extension!r}" for each in others for name in each.created()}
        prefix = f"holdfast_{self.extension}_"
        for name, what in self.created().items():
            if not name.startswith(prefix):
                raise self._invalid(f"{what} {name!r}; the names of what it creates begin with {prefix}")
            if name in taken:
                raise self._invalid(f"{what} {name!r}, and so does {taken[name]}")

    def created(self) -> dict[str, str]:
        """The names of tables, indexes and so on, each with the migration that creates it."""
        return _created_by(one for dialect in DIALECTS for one in self.migrations(dialect))

    def _check_queries(self) -> None:
        for query in self.queries.all():
            for dialect in DIALECTS:
                try:
                    render(query, dialect, 1)
                except (KeyError, ValueError, IndexError) as error:
                    raise self._invalid(
                        f"query {query.name!r} has a marker that does not exist: {error}", "invalid_query"
                    ) from None

    def _invalid(self, what: str, code: str = "invalid_migration") -> Invalid:
        return Invalid(f"extension {self.extension!r}: {what}", code=code)

    def _folder(self, *path: str) -> Traversable | None:
        try:
            root = files(self._package) if self._package else Path(self._module_file).parent
        except (ImportError, TypeError) as error:
            raise self._invalid(f"its package {self._package!r} is none: {error}", "invalid_extension") from None
        if not self._package and not self._module_file:
            return None
        for name in path:  # one by one: a namespace package takes no more on Python 3.11
            root = root.joinpath(name)
        return root if root.is_dir() else None


def _created_by(found: Iterable[Migration]) -> dict[str, str]:
    return {
        name.lower(): f"{one.name} creates {kind.lower()}"
        for one in found
        for kind, name in _CREATED.findall(_COMMENT.sub("", one.sql))
    }
