"""Every Python example of the documentation runs as it stands, and prints what the page says it prints.

A Python block is a complete script, run in an empty directory of its own. A text block right behind it is its output.
A TOML block whose first line is a comment with a file name is saved under that name for the scripts of its page.
A script that names `postgresql://localhost/jobs` needs PostgreSQL, and is given the test's database instead.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Block, blocks

POSTGRES = "postgresql://localhost/jobs"
SCRIPTS = [block for page in PAGES for block in blocks(page, "python")]
ON_POSTGRES = [script for script in SCRIPTS if POSTGRES in script.text]
ANYWHERE = [script for script in SCRIPTS if POSTGRES not in script.text]


def run(script: Block, folder: Path, text: str) -> None:
    for file in blocks(script.page, "toml"):
        first, _, _ = file.text.partition("\n")
        if first.startswith("# ") and first.endswith(".toml"):
            (folder / first.removeprefix("# ")).write_text(file.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert script.prints in (None, done.stdout)


@pytest.mark.parametrize("script", ANYWHERE, ids=str)
def test_the_example_runs(script: Block, tmp_path: Path) -> None:
    run(script, tmp_path, script.text)


@pytest.mark.parametrize("script", ON_POSTGRES, ids=str)
def test_the_example_runs_on_postgresql(script: Block, tmp_path: Path, fresh_postgres_url: str) -> None:
    run(script, tmp_path, script.text.replace(POSTGRES, fresh_postgres_url))


def test_there_are_examples_on_both_databases() -> None:
    assert any(script.page == "README.md" for script in ANYWHERE)
    assert any(script.page == "README.md" for script in ON_POSTGRES)
