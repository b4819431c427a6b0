"""Lifecycles: the state machines of jobs, as data."""

from collections.abc import Iterator

from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle.crawl import CRAWL
from holdfast.lifecycle.default import DEFAULT
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

BUILT_IN = (DEFAULT, ORCHESTRATION, CRAWL, TRANSCODE)


class Lifecycles:
    """The lifecycles of a process by name: built in, of installed extensions, declared by its app, or read from the
    database (of other apps)."""

    def __init__(self, *declared: Machine) -> None:
        self._machines = {machine.name: machine for machine in BUILT_IN}
        self._taken = dict.fromkeys(self._machines, "is built in")  # names that an app cannot declare, and why
        self._learned: set[str] = set()
        for extension, machine in _of_installed_extensions():
            self.declare(machine, by=f"extension {extension!r}: ")
            self._taken.setdefault(machine.name, f"is that of the installed extension {extension!r}")
        for machine in declared:
            self.declare(machine)

    def declare(self, machine: Machine, *, by: str = "") -> None:
        if machine.name in self._taken:
            if _are_same(machine, self._machines[machine.name]):
                return
            raise Invalid(
                f"{by}lifecycle {machine.name!r} {self._taken[machine.name]}; choose another name",
                code="invalid_lifecycle",
            )
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


def _of_installed_extensions() -> Iterator[tuple[str, Machine]]:
    """With the names of the extensions."""
    from holdfast.extension_settings import installed  # a client of the HTTP API needs none of it

    for manifest in installed():
        for machine in manifest.lifecycles:
            yield manifest.name, machine


def _are_same(one: Machine, other: Machine) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("words", "moves", "policy", "accept_separately", "about")
    )
