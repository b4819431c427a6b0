"""`holdfast jobs`: lists, shows, creates, cancels, wakes and redrives jobs."""

from __future__ import annotations

from typing import Any

from holdfast.cli.jobs import bulk, create, events, listing, show, why
from holdfast.cli.parser import group


def add_to(commands: Any) -> None:
    verbs = group(commands, "jobs", about="list, show, create, cancel, wake and redrive jobs")
    for module in (listing, show, create, bulk, events, why):
        module.add_to(verbs)
