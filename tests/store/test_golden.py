"""The SQL of hot statements is kept in files, and a command prints that of any query."""

import subprocess
import sys
from pathlib import Path

from holdfast.store.queries import q
from tests.store.golden import golden


def test_hot_statements_match_their_golden_files() -> None:
    expected = golden()
    found = {path: path.read_text("utf-8") for path in Path(__file__).with_name("golden").glob("*/*.sql")}
    assert found == expected, "the SQL has changed; if that is meant, run `python -m tests.store.golden`"


def printed(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-W", "error", "-m", "holdfast.store.render", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def test_the_sql_of_a_query_is_printed() -> None:
    for dialect in ("postgres", "sqlite"):
        path = Path(__file__).with_name("golden") / dialect / "complete_jobs.sql"
        assert printed("complete_jobs", dialect) == (0, path.read_text("utf-8"), "")


def test_without_a_name_all_names_are_listed() -> None:
    assert printed()[1].split() == sorted(query.name for query in q.all())


def test_an_unknown_query_or_form_is_refused_with_suggestions() -> None:
    status, out, error = printed("complet_jobs", "sqlite")
    assert (status, out) == (2, "")
    assert "no query is called 'complet_jobs'; did you mean 'complete_jobs' or " in error
    assert "a query has no form 'small'; its forms are minimal, observed, for_one" in printed("complete_jobs.small")[2]
