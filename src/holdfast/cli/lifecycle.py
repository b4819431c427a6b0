"""`holdfast lifecycle`: prints the lifecycles, built in and of installed extensions, as text, Mermaid or JSON."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from holdfast.cli.output import camel_keys, print_facts, print_json, print_table
from holdfast.cli.parser import command, group
from holdfast.errors import NotFound, UnknownName
from holdfast.lifecycle import Lifecycles, Machine
from holdfast.lifecycle.render import mermaid, to_data


def add_to(commands: Any) -> None:
    verbs = group(
        commands, "lifecycle", about="show the lifecycles that every process knows: states, transitions, policies"
    )
    command(
        verbs,
        "list",
        list_all,
        about="list the lifecycles and their state names",
        examples=["holdfast lifecycle list"],
        database=False,
    )
    show = command(
        verbs,
        "show",
        show_one,
        about="print the state names, transitions and policy of a lifecycle",
        examples=["holdfast lifecycle show default", "holdfast lifecycle show crawl --mermaid > crawl.mmd"],
        database=False,
    )
    show.add_argument("lifecycle", metavar="NAME", help="name of the lifecycle, as `holdfast lifecycle list` prints it")
    show.add_argument("--mermaid", action="store_true", help="print a Mermaid state diagram")


def list_all(options: argparse.Namespace) -> int:
    if options.json:
        print_json({"lifecycles": [_data(machine) for machine in Lifecycles()]})
    else:
        rows = ([machine.name, ", ".join(dict.fromkeys(machine.words.values()))] for machine in Lifecycles())
        print_table(["lifecycle", "state names"], rows)
    return 0


def show_one(options: argparse.Namespace) -> int:
    try:
        machine = Lifecycles()[options.lifecycle]
    except UnknownName as error:
        raise NotFound(error.message, code=error.code) from None
    if options.mermaid:
        print(mermaid(machine), end="")
    elif options.json:
        print_json(_data(machine))
    else:
        _print(machine)
    return 0


def _data(machine: Machine) -> dict[str, Any]:
    data = to_data(machine)
    return {**camel_keys(data), "policy": camel_keys(data["policy"])}


def _print(machine: Machine) -> None:
    words = machine.words
    print(f"{machine.name}: {machine.about}\n")
    print_facts((state.value, word) for state, word in words.items())
    print()
    print_table(
        ["verb", "from", "to", "by"],
        ([move.verb, words[move.source], words[move.target], ", ".join(sorted(move.actors))] for move in machine.moves),
    )
    print()
    policy = msgspec.to_builtins(machine.policy)
    print_facts((name, "off" if value is None else f"{value}") for name, value in policy.items() if value != {})
