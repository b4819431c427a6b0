"""A lifecycle as text: written in TOML, kept as JSON, drawn as Mermaid; whatever the form, the same machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.lifecycle import Lifecycles, Machine, Policy, State, Treatment
from holdfast.lifecycle.render import from_data, from_toml, from_toml_file, mermaid, to_data
from tests.pure.declared import MOVES, WORDS, declare

BAKERY = """
name = "bakery"
about = "Bread."
moves = [
  "claim: queued -> running by worker",
  "complete: running -> succeeded by worker",
  "release: running -> queued by worker",
  "fail: running -> dead by worker",
  "reap: running -> dead by system",
]

[words]
queued = "waiting"
running = "baking"
succeeded = "served"
dead = "burnt"

[policy]
lease_seconds = 120
max_attempts = 1
errors = { oven_cold = "permanent" }
"""


def same(one: Machine, other: Machine) -> bool:
    return to_data(one) == to_data(other) and one.mask == other.mask and one.policy == other.policy


@pytest.mark.parametrize("machine", list(Lifecycles()), ids=lambda machine: machine.name)
def test_a_lifecycle_round_trips_through_json(machine: Machine) -> None:
    """R000-1: one machine-readable definition; a job's snapshot of its lifecycle is read back from it."""
    again = from_data(json.loads(json.dumps(to_data(machine))))
    assert same(again, machine)
    assert again.moves == machine.moves


def test_toml_and_python_declare_the_same_lifecycle(tmp_path: Path) -> None:
    policy = Policy(lease_seconds=120, max_attempts=1, errors={"oven_cold": Treatment.PERMANENT})
    in_python = declare(about="Bread.", policy=policy)
    assert same(from_toml(BAKERY), in_python)
    file = tmp_path / "bakery.toml"
    file.write_text(BAKERY, encoding="utf-8")
    assert same(from_toml_file(file), in_python)
    assert from_toml(BAKERY).words[State.DEAD] == "burnt"


def test_a_file_that_is_not_toml_says_where() -> None:
    with pytest.raises(Invalid, match=r"lifecycle file is not TOML: .*line 1") as caught:
        from_toml("name =\nmoves = []")
    assert caught.value.code == "invalid_lifecycle"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"name": "bakery", "words": WORDS}, "lifecycle 'bakery': missing ['moves']"),
        ({"words": WORDS, "moves": MOVES}, "lifecycle '?': missing ['name']"),
        ({"name": "bakery", "words": WORDS, "moves": MOVES, "colour": "red"}, "lifecycle 'bakery': unknown ['colour']"),
    ],
)
def test_a_missing_or_unknown_key_is_named_with_the_known_ones(data: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid) as caught:
        from_data(data)
    assert caught.value.message.startswith(says)
    assert "keys are ['about', 'accept_separately', 'moves', 'name', 'policy', 'words']" in caught.value.message


def test_an_unknown_policy_field_is_named() -> None:
    with pytest.raises(Invalid, match="lease_secs") as caught:
        from_toml(BAKERY.replace("lease_seconds", "lease_secs"))
    assert caught.value.code == "invalid_policy"


def test_the_crawl_diagram_uses_its_state_names() -> None:
    """The graph of R002-9, with the hand-back every lifecycle has and the cancel of C-7."""
    [crawl] = [machine for machine in Lifecycles() if machine.name == "crawl"]
    assert mermaid(crawl) == (
        "stateDiagram-v2\n"
        "    [*] --> queued: create\n"
        "    queued --> running: claim\n"
        "    retry_pending --> running: claim\n"
        "    running --> succeeded: complete\n"
        "    running --> retry_pending: fail, reap\n"
        "    running --> failed: fail, reap\n"
        "    running --> queued: release\n"
        "    queued --> canceled: cancel\n"
        "    retry_pending --> canceled: cancel\n"
        "    running --> canceled: cancel, reap\n"
        "    succeeded --> [*]\n"
        "    failed --> [*]\n"
        "    canceled --> [*]\n"
    )


def test_the_bakery_as_data() -> None:
    data = to_data(declare(about="Bread."))
    policy = data.pop("policy")
    assert data == {
        "name": "bakery",
        "about": "Bread.",
        "words": WORDS,
        "moves": list(MOVES),
        "accept_separately": False,
    }
    assert policy["lease_seconds"] == 30
    assert policy.keys() == {*Policy.__struct_fields__}


@pytest.mark.parametrize("machine", list(Lifecycles()), ids=lambda machine: machine.name)
def test_every_state_and_every_move_is_in_the_picture(machine: Machine) -> None:
    drawn = mermaid(machine)
    for move in machine.moves:
        assert f"    {machine.words[move.source]} --> {machine.words[move.target]}: " in drawn
    assert f"[*] --> {machine.words[machine.initial]}: create" in drawn
