"""Policy fields from the settings: they override the lifecycle, and a job type overrides them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle import Machine, Policy
from holdfast.lifecycle.settings import setting_word


@dataclass(frozen=True)
class PolicySettings:
    """`values` are the global settings. Those in `given` were set explicitly and override the lifecycle; the others
    apply where the lifecycle has the default. `alone`: settings of one lifecycle, by its name in settings.
    """

    values: Mapping[str, float | None] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    alone: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    def of(self, machine: Machine) -> dict[str, float | None]:
        """The policy fields that the settings change for this lifecycle."""
        own, standard = machine.policy, Policy()
        alone = self.alone.get(setting_word(machine.name), {})
        knobs = {
            name: value
            for name, value in self.values.items()
            if name in self.given or getattr(own, name) == getattr(standard, name)
        } | dict(alone)
        lease, beat = (knobs.get(name, getattr(own, name)) for name in ("lease_seconds", "heartbeat_seconds"))
        if beat >= lease and "heartbeat_seconds" not in alone:  # set for lifecycles with other leases
            knobs["heartbeat_seconds"] = lease / 3
        return knobs

    def are_of(self, machines: Iterable[Machine]) -> bool:
        """Whether all lifecycles with settings are among these."""
        return self.alone.keys() <= {setting_word(machine.name) for machine in machines}

    def check(self, machines: Iterable[Machine]) -> None:
        """Raise for settings of an unknown lifecycle, and for values that are invalid together."""
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
