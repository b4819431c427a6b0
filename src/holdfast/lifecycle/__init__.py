"""Lifecycles: the state machines of jobs, as data."""

from collections.abc import Iterator

from holdfast.errors import Invalid, UnknownName
from holdfast.extension_settings import installed
from holdfast.lifecycle.crawl import CRAWL
from holdfast.lifecycle.default import DEFAULT
from holdfast.lifecycle.generation import GENERATION
from holdfast.lifecycle.machine import VERBS, Machine
from holdfast.lifecycle.orchestration import ORCHESTRATION
from holdfast.lifecycle.policy import Idempotency, Policy, Reaping, Treatment
from holdfast.lifecycle.states import BIT, FINAL, PAIRS, STATUS, Actor, Move, State
from holdfast.lifecycle.transcode import TRANSCODE

__all__ = [
    "BIT",
    "BUILT_IN",
    "DEFAULT",
    "FINAL",
    "PAIRS",
    "STATUS",
    "VERBS",
    "Actor",
    "Idempotency",
    "Lifecycles",
    "Machine",
    "Move",
    "Policy",
    "Reaping",
    "State",
    "Treatment",
]

BUILT_IN = (DEFAULT, ORCHESTRATION, CRAWL, TRANSCODE, GENERATION)


class Lifecycles:
    """The lifecycles of a process by name: built in, of installed extensions, declared by its app, or read from the
    database (of other apps)."""

    def __init__(self, *declared: Machine) -> None:
        of_extensions = [machine for manifest in installed() for machine in manifest.lifecycles]
        self._machines = {machine.name: machine for machine in (*BUILT_IN, *of_extensions)}
        self._learned: set[str] = set()
        for machine in declared:
            self.declare(machine)

    def declare(self, machine: Machine) -> None:
        if machine.name in {built_in.name for built_in in BUILT_IN}:
            raise Invalid(f"lifecycle {machine.name!r} is built in; choose another name", code="invalid_lifecycle")
        self._machines[machine.name] = machine
        self._learned.discard(machine.name)

    def learn(self, machine: Machine) -> None:
        """Add a lifecycle of another process; declarations of this process take precedence."""
        if machine.name not in self._machines or machine.name in self._learned:
            self._machines[machine.name] = machine
            self._learned.add(machine.name)

    def __getitem__(self, name: str) -> Machine:
        if name not in self._machines:
            raise UnknownName.of("lifecycle", name, list(self._machines))
        return self._machines[name]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._machines.values())
