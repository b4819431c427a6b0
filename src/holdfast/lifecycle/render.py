"""Renders a lifecycle as a Mermaid diagram, and converts it to and from JSON and TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, Invalid
from holdfast.lifecycle.default import DEFAULT
from holdfast.lifecycle.machine import LAWFUL, Machine, read_moves
from holdfast.lifecycle.policy import Policy
from holdfast.lifecycle.states import ALL_BITS, FINAL, Move, State


def mermaid(machine: Machine) -> str:
    """A state diagram with the state names of the lifecycle; a name that is no identifier gets an id."""
    ids = {state: word if word.isidentifier() else f"{state}_" for state, word in machine.words.items()}
    verbs: dict[tuple[str, str], list[str]] = {}
    for move in machine.moves:
        verbs.setdefault((ids[move.source], ids[move.target]), []).append(move.verb)
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{machine.words[state]}" as {name}' for state, name in ids.items() if name.endswith("_")]
    lines += [f"    [*] --> {ids[machine.initial]}: create"]
    lines += [f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in verbs.items()]
    lines += dict.fromkeys(f"    {name} --> [*]" for state, name in ids.items() if state in FINAL)
    return "\n".join(lines) + "\n"


def to_data(machine: Machine) -> dict[str, Any]:
    """The lifecycle in plain types; `from_data` reads it back."""
    return {
        "name": machine.name,
        "about": machine.about,
        "words": {state.value: word for state, word in machine.words.items()},
        "moves": [str(move) for move in machine.moves],
        "accept_separately": machine.accept_separately,
        "policy": msgspec.to_builtins(machine.policy),
    }


_KEYS = {"name", "about", "words", "moves", "accept_separately", "policy"}


def from_data(data: dict[str, Any]) -> Machine:
    unknown = sorted(data.keys() - _KEYS)
    missing = sorted({"name", "words", "moves"} - data.keys())
    if unknown or missing:
        what = f"unknown {unknown}" if unknown else f"missing {missing}"
        raise Invalid(
            f"lifecycle {data.get('name', '?')!r}: {what}; keys are {sorted(_KEYS)}", code="invalid_lifecycle"
        )
    return Machine(
        data["name"],
        words=data["words"],
        moves=data["moves"],
        policy=Policy().over(data.get("policy", {})),
        accept_separately=data.get("accept_separately", False),
        about=data.get("about", ""),
    )


def from_stored(data: Any, mask: int) -> tuple[Machine, list[str]]:
    """A stored lifecycle, perhaps of a newer version, and the names of what this version cannot read.

    If the rest is no valid lifecycle, it is built from `mask`, the pairs of states that the database allows its jobs.
    """
    try:
        words = {state: word for state, word in data["words"].items() if state in list(State)}
        policy, ignored = Policy().over_stored(data.get("policy", {}))
        machine = Machine(
            data["name"],
            words=words,
            moves=[str(move) for move in map(_known_move, data["moves"]) if move is not None],
            policy=policy,
            accept_separately=bool(data.get("accept_separately", False)),
            about=str(data.get("about", "")),
        )
        if mask & ALL_BITS & ~machine.mask == 0:
            return machine, [*sorted(data.keys() - _KEYS), *sorted(data["words"].keys() - words.keys()), *ignored]
    except (HoldfastError, KeyError, TypeError, AttributeError):
        pass
    name = data.get("name") if isinstance(data, dict) else None
    try:
        return Machine.of_mask(name if isinstance(name, str) else "unknown", mask), ["lifecycle"]
    except HoldfastError:
        return DEFAULT, ["lifecycle"]


def _known_move(line: Any) -> Move | None:
    """None if it has a verb, a state or an actor of a newer version."""
    try:
        [move] = read_moves([line])
        return move if move[:3] in LAWFUL else None
    except (HoldfastError, ValueError, TypeError):
        return None


def from_toml(text: str) -> Machine:
    """A lifecycle from a TOML file: `name`, `[words]`, `moves = ["claim: queued -> running by worker"]`, `[policy]`."""
    try:
        return from_data(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"lifecycle file is not TOML: {error}", code="invalid_lifecycle") from None


def from_toml_file(path: Path) -> Machine:
    return from_toml(path.read_text(encoding="utf-8"))
