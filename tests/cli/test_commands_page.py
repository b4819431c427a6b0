"""docs/reference/cli.md: each example prints what the page says, and each command has its section."""

from pathlib import Path

import pytest

from holdfast.cli.commands import make_parser
from holdfast.cli.completion import places
from tests.cli.page import PAGE, Names, examples, lasting, prepare, run

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.timeout(600)  # some fifty processes, one after the other
def test_every_example_prints_what_the_page_says(tmp_path: Path) -> None:
    """One after the other, as somebody would type them who reads the page."""
    prepare(tmp_path)
    names = Names()
    for example in examples(TEXT):
        seen = run(names.real(example.command), tmp_path)
        names.learn(example.prints, seen)
        assert lasting(seen) == lasting(names.real(example.prints)), (
            f"`{example.command}` prints something else; if that is meant, run `python -m tests.cli.page`"
        )


def test_every_command_has_its_section() -> None:
    found = {line.removeprefix("## ") for line in TEXT.splitlines() if line.startswith("## ")}
    paths = [place.path.strip("/").replace("/", " ") for place in places(make_parser()) if place.path]
    leaves = {path for path in paths if not any(other.startswith(f"{path} ") for other in paths)}
    assert leaves == found
