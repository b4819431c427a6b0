"""What the settings say about policies, laid between the lifecycle and the job type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle import Machine, Policy
from holdfast.lifecycle.machine import setting_word


@dataclass(frozen=True)
class PolicySettings:
    """A setting that was given goes over the lifecycle; a default fills in what the lifecycle leaves at its standard.

    `alone` holds what is set for one lifecycle, by its name as it is written in a variable.
    """

    values: Mapping[str, float | None] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    alone: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    def of(self, machine: Machine) -> dict[str, float | None]:
        """The knobs that the settings decide for jobs of this lifecycle."""
        own, standard = machine.policy, Policy()
        alone = self.alone.get(setting_word(machine.name), {})
        knobs = {
            name: value
            for name, value in self.values.items()
            if name in self.given or getattr(own, name) == getattr(standard, name)
        } | dict(alone)
        lease, beat = (knobs.get(name, getattr(own, name)) for name in ("lease_seconds", "heartbeat_seconds"))
        if beat >= lease and "heartbeat_seconds" not in alone:  # one of the two was meant for other lifecycles
            knobs["heartbeat_seconds"] = lease / 3
        return knobs

    def are_of(self, machines: Iterable[Machine]) -> bool:
        """Whether each lifecycle that something is set for is one of these."""
        return self.alone.keys() <= {setting_word(machine.name) for machine in machines}

    def check(self, machines: Iterable[Machine]) -> None:
        """Refuse settings of a lifecycle that does not exist, and those that make no policy together."""
        known = {setting_word(machine.name): machine for machine in machines}
        for word, knobs in self.alone.items():
            if word not in known:
                first = next(iter(knobs))
                raise UnknownName.of(
                    "setting", _name(word, first), [_name(each, first) for each in known], where="the settings"
                )
            try:
                known[word].policy.over(self.of(known[word]))
            except Invalid as error:
                names = ", ".join(_name(word, knob) for knob in knobs)
                raise Invalid(f"{names}: {error.message}", code="invalid_setting") from None


def _name(word: str, knob: str) -> str:
    return f"lifecycle_{word}_{knob}"
