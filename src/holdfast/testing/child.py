"""Child processes of a test: their app uses the database and the clock of the test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.testing.clock import SharedClock
from holdfast.worker.processes.app_loader import load

if TYPE_CHECKING:
    from holdfast.sdk.app import App


def reference_for(app: App, clock: SharedClock) -> str | None:
    """The reference by which a child loads the app: a generated script. None if a child cannot import the app."""
    if app.reference is None:
        return None
    script = clock.path.with_name("child.py")
    what = f"{app.reference!r}, {app.settings.url!r}, {str(clock.path)!r}"
    script.write_text(f"from holdfast.testing.child import overridden\n\napp = overridden({what})\n", encoding="utf-8")
    return f"{script}:app"


def overridden(reference: str, database_url: str, clock: str) -> App:
    app: App = load(reference, [])
    app.settings = msgspec.structs.replace(app.settings, database_url=database_url)
    app.clock = SharedClock(Path(clock))
    return app
