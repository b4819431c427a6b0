"""The verbs. `Engine` lists them; each lives in a file of its name, beside a `.sql` file of the same name."""

from holdfast.engine.complete import Done
from holdfast.engine.create import Created
from holdfast.engine.engine import Engine
from holdfast.engine.fail import Failure
from holdfast.engine.heartbeat import Beat
from holdfast.engine.held import Held, Settled
from holdfast.engine.progress import Advanced, Progress
from holdfast.engine.prune import Retention
from holdfast.engine.read import Cursor, Filter, Page
from holdfast.engine.reject import Verdict
from holdfast.engine.release import Freed
from holdfast.engine.rules import Limits
from holdfast.engine.why import Clause
from holdfast.engine.workers import NewWorker

__all__ = [
    "Advanced",
    "Beat",
    "Clause",
    "Created",
    "Cursor",
    "Done",
    "Engine",
    "Failure",
    "Filter",
    "Freed",
    "Held",
    "Limits",
    "NewWorker",
    "Page",
    "Progress",
    "Retention",
    "Settled",
    "Verdict",
]
