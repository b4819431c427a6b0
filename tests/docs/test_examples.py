"""Every example of the documentation does what the page says.

A Python block is a complete script, run in an empty directory of its own. A text block right behind it is its output.
A block whose first line is a comment with a file name is saved under that name, for what comes after it on its page.
If such a file has a part for `__main__`, that is run while a worker runs the jobs of the file's `app`.
The console blocks under one heading are one terminal, in which somebody types one command after the other.
What names `postgresql://localhost/jobs` needs PostgreSQL, and is given the test's database instead; what names the
address of a server is given a free one.
"""

import shutil
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from holdfast.extension_settings import GROUP
from tests.cli.background import Background
from tests.cli.page import examples
from tests.cli.processes import environment
from tests.docs.address import Address
from tests.docs.pages import PAGES, ROOT, Block, blocks, files
from tests.docs.terminal import Terminal
from tests.extension.distributions import install

POSTGRES = "postgresql://localhost/jobs"
PYTHON = [block for page in PAGES for block in blocks(page, "python")]
SCRIPTS = [block for block in PYTHON if not block.file]
PROGRAMS = [block for block in PYTHON if block.file and "__main__" in block.text]
# docs/reference/cli.md has a test of its own: it looks at a system that was prepared for it.
TYPED = [block for page in PAGES if page != "docs/reference/cli.md" for block in blocks(page, "console")]
TERMINALS = [list(typed) for _, typed in groupby(TYPED, key=lambda block: (block.page, block.heading))]


def anywhere(found: list[Block]) -> list[Block]:
    return [block for block in found if POSTGRES not in block.text]


def on_postgres(found: list[Block]) -> list[Block]:
    return [block for block in found if POSTGRES in block.text]


def with_files(block: Block, folder: Path, address: Address) -> Path:
    """What the page has saved so far, and the programs that stand beside it; those on the page stand alone."""
    for program in [found for kind in ("*.py", "*.mjs") for found in (ROOT / block.page).parent.glob(kind)]:
        shutil.copy(program, folder)
    for name, content in files(block.page, before=block.line).items():
        if "__main__" not in content:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(address.here(content), encoding="utf-8")
    return folder


def install_package(folder: Path) -> dict[str, str]:
    """As `pip install -e .` does for the extensions of its pyproject.toml, and the variables that this takes."""
    project = folder / "pyproject.toml"
    declared = tomllib.loads(project.read_text(encoding="utf-8")) if project.exists() else {}
    manifests = declared.get("project", {}).get("entry-points", {}).get(GROUP, {})
    install(folder, **manifests)
    return {"PYTHONPATH": str(folder)} if manifests else {}


def run(block: Block, folder: Path, text: str) -> None:
    script = folder / (block.file or "script.py")
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert block.prints in (None, done.stdout)


@pytest.mark.parametrize("script", anywhere(SCRIPTS), ids=str)
def test_the_script_runs(script: Block, tmp_path: Path) -> None:
    run(script, with_files(script, tmp_path, Address()), script.text)


@pytest.mark.parametrize("script", on_postgres(SCRIPTS), ids=str)
def test_the_script_runs_on_postgresql(script: Block, tmp_path: Path, fresh_postgres_url: str) -> None:
    run(script, with_files(script, tmp_path, Address()), script.text.replace(POSTGRES, fresh_postgres_url))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_the_program_runs_with_a_worker(program: Block, tmp_path: Path) -> None:
    assert program.file
    folder, module = with_files(program, tmp_path, Address()), program.file.removesuffix(".py")
    (folder / program.file).write_text(program.text, encoding="utf-8")
    with Background("worker", "--app", f"{module}:app", folder=folder) as worker:
        run(program, folder, program.text)
        assert worker.end() == 0, worker.said
        ours = [line for line in worker.said.splitlines() if '"logger":"holdfast.attempts"' not in line]
        assert not any("Traceback" in line for line in ours), worker.said  # but those of its handlers


def terminal(typed: list[Block]) -> Any:
    """The first page is tried before each commit."""
    return pytest.param(typed, id=str(typed[0]), marks=[] if typed[0].page == "README.md" else pytest.mark.slow)


@pytest.mark.parametrize("typed", [terminal(typed) for typed in TERMINALS if not on_postgres(typed)])
def test_the_commands_print_the_documented_output(typed: list[Block], tmp_path: Path) -> None:
    play(typed, tmp_path, POSTGRES)


@pytest.mark.parametrize("typed", [terminal(typed) for typed in TERMINALS if on_postgres(typed)])
def test_the_commands_print_the_documented_output_on_postgresql(
    typed: list[Block], tmp_path: Path, fresh_postgres_url: str
) -> None:
    play(typed, tmp_path, fresh_postgres_url)


def play(typed: list[Block], folder: Path, url: str) -> None:
    address = Address()
    with_files(typed[-1], folder, address)
    with Terminal(folder, address, **install_package(folder)) as terminal:
        for block in typed:
            for example in examples(f"```console\n{block.text.replace(POSTGRES, url)}```"):
                terminal.type(example)
        terminal.end()


def test_there_are_examples_of_each_kind_on_both_databases() -> None:
    first_page = [block for block in [*PROGRAMS, *TYPED, *SCRIPTS] if block.page == "README.md"]
    assert anywhere(first_page)
    assert on_postgres(first_page)
