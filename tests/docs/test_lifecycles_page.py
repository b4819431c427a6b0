"""The page of lifecycles says what the lifecycles say."""

import re
from typing import Any

import msgspec
import pytest

from holdfast.lifecycle import Lifecycles, Machine, Policy
from holdfast.lifecycle.states import STATUS
from tests.docs.generate import PAGE, describe, with_lifecycles
from tests.docs.pages import section


def test_the_generated_part_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_lifecycles(page), "run `python -m tests.docs.generate`"


@pytest.mark.parametrize("machine", list(Lifecycles()), ids=lambda machine: machine.name)
def test_every_state_name_transition_and_actor_of_a_lifecycle_is_shown(machine: Machine) -> None:
    text = describe(machine)
    for word in machine.words.values():
        assert f"`{word}`" in text
    for move in machine.moves:
        shown = f"| `{move.verb}` | {machine.words[move.source]} -> {machine.words[move.target]} |"
        assert f"{shown} {', '.join(sorted(move.actors))} |" in text


def test_the_page_of_concepts_shows_the_status_of_each_state() -> None:
    text = section("docs/start/concepts.md", "A job from start to end")
    rows = re.findall(r"(?m)^\| `(\w+)` \| `(\w+)` \|", text)
    assert dict(rows) == {state.value: status for state, status in STATUS.items()}


def test_every_policy_parameter_is_explained_with_its_default() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.*?) \|", section("docs/reference/lifecycles.md", "Policy"))
    assert dict(rows) == {name: _shown(value) for name, value in msgspec.to_builtins(Policy()).items()}


def _shown(value: Any) -> str:
    match value:
        case None:
            return "off"
        case {}:
            return "none"
        case str():
            return f"`{value}`"
        case _:
            return str(value).lower()
