"""The data types of the domain, without clock, randomness or database."""

from holdfast.model.history import Attempt, Event, Part, PartStatus
from holdfast.model.job import Job, Lease, NewJob
from holdfast.model.job_type import JobType
from holdfast.model.worker import Liveness, WorkerRecord

__all__ = [
    "Attempt",
    "Event",
    "Job",
    "JobType",
    "Lease",
    "Liveness",
    "NewJob",
    "Part",
    "PartStatus",
    "WorkerRecord",
]
