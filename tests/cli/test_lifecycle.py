"""`holdfast lifecycle`: needs no database at all."""

import pytest

from holdfast.cli import main
from holdfast.lifecycle import Lifecycles
from holdfast.lifecycle.render import mermaid
from tests.cli.conftest import Answer

Capture = pytest.CaptureFixture[str]


def holdfast(capsys: Capture, *arguments: str) -> Answer:
    return Answer(main([*arguments]), *capsys.readouterr())


def test_every_lifecycle_is_listed_with_its_state_names(capsys: Capture) -> None:
    listed = holdfast(capsys, "lifecycle", "list")
    assert [row[0] for row in listed.rows] == [machine.name for machine in Lifecycles()]
    data = holdfast(capsys, "lifecycle", "list", "--json").json["lifecycles"]
    assert [found["words"] for found in data] == [
        {state.value: word for state, word in machine.words.items()} for machine in Lifecycles()
    ]


def test_a_lifecycle_is_shown_with_its_transitions_and_policy(capsys: Capture) -> None:
    shown = holdfast(capsys, "lifecycle", "show", "crawl")
    assert "reap\trunning\tretry_pending\tsystem\n" in shown.out
    assert "max_attempts                7\n" in shown.out
    data = holdfast(capsys, "lifecycle", "show", "crawl", "--json").json
    assert data["policy"]["maxAttempts"] == 7
    assert "reap: running -> retrying by system" in data["moves"]


def test_the_diagram_is_the_one_of_the_documentation(capsys: Capture) -> None:
    for machine in Lifecycles():
        assert holdfast(capsys, "lifecycle", "show", machine.name, "--mermaid").out == mermaid(machine)


def test_an_unknown_lifecycle_exits_with_3_and_a_suggestion(capsys: Capture) -> None:
    answer = holdfast(capsys, "lifecycle", "show", "craw")
    assert (answer.code, answer.err) == (3, "holdfast: unknown lifecycle 'craw'; did you mean 'crawl'?\n")
