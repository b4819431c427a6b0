"""`Manifest`: describes an installed extension. Every process may import it, so it needs none of the extension's
extras and little of Holdfast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import msgspec

from holdfast.extension_settings import Secret, SettingsSection
from holdfast.lifecycle import Machine

__all__ = ["Manifest", "Secret"]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Found by an entry point of the group `holdfast.extensions` with the name of the extension."""

    name: str
    settings: type[msgspec.Struct] | None = None
    lifecycles: tuple[Machine, ...] = ()
    job_types: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    @cached_property
    def section(self) -> SettingsSection | None:
        return None if self.settings is None else SettingsSection(self.name, self.settings)
