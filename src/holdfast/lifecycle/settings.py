"""Settings of one lifecycle: `lifecycle_transcode_lease_seconds`, or in the file a table `[lifecycle.transcode]`.

Only a process with the app knows all lifecycles; there `PolicySettings.check` rejects unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "lifecycle_"
# Settings per lifecycle, and the global setting with the same meaning and range.
KNOBS = {
    "lease_seconds": "lease_seconds",
    "heartbeat_seconds": "heartbeat_seconds",
    "max_attempts": "max_attempts",
    "offline_seconds": "worker_offline_seconds",
    "no_progress_seconds": "no_progress_seconds",
}


def setting_word(lifecycle: str) -> str:
    """The name of a lifecycle in settings, which have no hyphens."""
    return lifecycle.replace("-", "_")


def setting_like(name: str) -> str | None:
    """The global setting of a per-lifecycle setting; None for other names."""
    found = _split(name)
    return None if found is None else KNOBS[found[1]]


def by_lifecycle(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Policy fields by lifecycle, from settings by full name."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if (split := _split(name)) is not None:
            found.setdefault(split[0], {})[split[1]] = value
    return found


def flat(lifecycles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The inverse."""
    return {
        f"{PREFIX}{lifecycle}_{knob}": value for lifecycle, knobs in lifecycles.items() for knob, value in knobs.items()
    }


def flattened(file: dict[str, Any]) -> dict[str, Any]:
    """Flatten the lifecycle tables of the file to full names; other keys stay."""
    tables = file.get("lifecycle")
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        return file
    words = {setting_word(name): table for name, table in tables.items()}
    return {name: value for name, value in file.items() if name != "lifecycle"} | flat(words)


def names_like(name: str, settings: Sequence[str]) -> list[str]:
    """Candidates for an unknown name."""
    lifecycle = name.removeprefix(PREFIX).partition("_")[0]
    return [f"{PREFIX}{lifecycle}_{knob}" for knob in KNOBS] if name.startswith(PREFIX) else list(settings)


def _split(name: str) -> tuple[str, str] | None:
    rest = name.removeprefix(PREFIX)
    for knob in KNOBS:
        if name.startswith(PREFIX) and rest.endswith(f"_{knob}"):
            return rest.removesuffix(f"_{knob}"), knob
    return None
