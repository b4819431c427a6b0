"""The verbs. `Engine` lists them; each lives in a file of its name, beside a `.sql` file of the same name."""

from holdfast.engine.engine import Engine
from holdfast.engine.insert import Created
from holdfast.engine.prune import Retention
from holdfast.engine.read import Cursor, Filter, Page
from holdfast.engine.rules import Limits
from holdfast.engine.why import Clause
from holdfast.engine.workers import NewWorker
from holdfast.model.reports import Advanced, Beat, Done, Failure, Freed, Held, Progress, Settled, Verdict

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
