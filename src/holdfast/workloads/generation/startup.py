"""What servers and workers do not start without: valid lists, and the plug-ins that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.errors import Invalid
from holdfast.workloads.generation.blocked_images import parse_hashes
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.guard.classifier import load_classifier
from holdfast.workloads.generation.guard.lists import ListFile, parse_allowlist, parse_blocklist
from holdfast.workloads.generation.hooks import prompt_guard
from holdfast.workloads.generation.jobs import moderator

LISTS: dict[str, Callable[[str], Any]] = {
    "blocklist_file": parse_blocklist,
    "allowlist_file": parse_allowlist,
    "blocked_images_file": parse_hashes,
}


@ext.startup
async def load_lists_and_plug_ins() -> None:
    """They are kept: a file that becomes invalid later leaves its last valid version in force."""
    for name, parse in LISTS.items():
        with _setting(name):
            ListFile(getattr(ext.settings, name), parse)
    prompt_guard()
    with _setting("moderator"):
        moderator()
    with _setting("classifier"):
        classifier = load_classifier(ext.settings)
    if classifier is not None:
        await classifier.close()


@contextmanager
def _setting(name: str) -> Iterator[None]:
    """Names it in errors."""
    try:
        yield
    except Exception as error:  # of a plug-in
        why = error.message if isinstance(error, Invalid) else f"{type(error).__name__}: {error}"
        raise Invalid(f"HOLDFAST_GENERATION_{name.upper()}: {why}", code="invalid_setting") from error
