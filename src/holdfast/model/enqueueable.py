"""What can be enqueued: a job type of an app with its arguments, a job as data, or a type by its name."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.errors import Invalid
from holdfast.model.job import NewJob


class MakesJobs(Protocol):
    """A job type of an app: its function's arguments become a job."""

    def new_job(self, *args: Any, **kwargs: Any) -> NewJob: ...


def new_job_of(job: MakesJobs | NewJob | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    if isinstance(job, str):
        if args:
            raise Invalid("a job of a type that is named takes its payload by names", code="invalid_payload")
        return NewJob(type=job, payload=kwargs)
    return job if isinstance(job, NewJob) else job.new_job(*args, **kwargs)
