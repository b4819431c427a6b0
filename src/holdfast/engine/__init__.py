"""The engine: every operation on jobs. `Engine` lists the verbs; each verb is in the file of its name."""

from holdfast.engine.admin.workers import NewWorker
from holdfast.engine.context import EngineLimits
from holdfast.engine.engine import Engine
from holdfast.engine.insert import Created
from holdfast.engine.maintenance.prune import Retention
from holdfast.engine.reads.read import Cursor, Filter, Page
from holdfast.engine.reads.why import Clause
from holdfast.model.reports import Advanced, Beat, Complete, Fail, HeldLease, Progress, Rejection, Release, Settled

__all__ = [
    "Advanced",
    "Beat",
    "Clause",
    "Complete",
    "Created",
    "Cursor",
    "Engine",
    "EngineLimits",
    "Fail",
    "Filter",
    "HeldLease",
    "NewWorker",
    "Page",
    "Progress",
    "Rejection",
    "Release",
    "Retention",
    "Settled",
]
