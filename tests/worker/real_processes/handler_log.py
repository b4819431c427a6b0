"""What handlers did, recorded in a file outside the database, to compare with the history of their jobs."""

import json
import os
import time
from pathlib import Path
from typing import Any

from holdfast.worker.context import Context, SyncContext

VARIABLE = "HOLDFAST_TEST_HANDLER_LOG"


def note(what: str, ctx: Context | SyncContext, **more: Any) -> None:
    """One atomic append: complete whichever process writes at the same time or is killed next."""
    line = {"what": what, "job": ctx.job_id, "epoch": ctx.fence, "pid": os.getpid(), "at": time.time(), **more}
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


class HandlerLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._notes: dict[tuple[str, str], list[dict[str, Any]]] = {}
        path.touch()

    def notes(self, what: str, job: str) -> list[dict[str, Any]]:
        self._read_on()
        return self._notes.get((what, job), [])

    def _read_on(self) -> None:
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")  # the last line may not be all there yet
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            note = json.loads(line)
            self._notes.setdefault((note["what"], note["job"]), []).append(note)
