"""Child processes of a test: their app too is on the test's database and lives in the test's time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.testing.clock import SharedClock
from holdfast.worker.loading import load

if TYPE_CHECKING:
    from holdfast.app import App


def script_for(app: App, folder: Path) -> str | None:
    """A reference by which a child loads the app; None where a child cannot import it."""
    if app.reference is None:
        return None
    script = folder / "child.py"
    text = f"from holdfast.testing.child import moved\n\napp = moved({app.reference!r}, {str(folder)!r})\n"
    script.write_text(text, encoding="utf-8")
    return f"{script}:app"


def moved(reference: str, folder: str) -> App:
    app: App = load(reference, [])
    app.settings = msgspec.structs.replace(app.settings, database_url=database_in(Path(folder)))
    app.clock = clock_in(Path(folder))
    return app
