"""The command that prints the SQL of a query: `python -m holdfast.store.render claim_jobs postgres`.

Without arguments it lists all names. `complete_jobs.observed.for_one` is a form for observers and a single row.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from holdfast.store.queries import Query, q
from holdfast.store.render import FILTERS, POSTGRES, SQLITE, history_afterwards, render

_FORMS = ("minimal", "observed", "for_one")
_LIMIT = 100


def sql_of(name: str, dialect: str) -> str:
    """All statements that a store runs for the query, with all filters and a limit of 100."""
    query = _named(name)
    statements = [render(query, dialect, _LIMIT, tuple(FILTERS)).text]
    if query.recorded and dialect == SQLITE:
        statements += history_afterwards(query)
    return ";\n\n".join(statements) + ";\n"


def _named(name: str) -> Query:
    base, *forms = name.split(".")
    query: Query = getattr(q, base)
    for form in forms:
        if form not in _FORMS:
            raise AttributeError(f"a query has no form {form!r}; its forms are {', '.join(_FORMS)}")
        query = getattr(query, form)
    return query


def main() -> None:
    parser = ArgumentParser(prog="python -m holdfast.store.render", description="Print the SQL that a query runs.")
    parser.add_argument("name", nargs="?", help="the query, such as claim_jobs; without it, list all names")
    parser.add_argument("dialect", nargs="?", choices=[POSTGRES, SQLITE], default=POSTGRES)
    chosen = parser.parse_args()
    names = "".join(f"{name}\n" for name in sorted(query.name for query in q.all()))
    try:
        sys.stdout.write(sql_of(chosen.name, chosen.dialect) if chosen.name else names)
    except AttributeError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
