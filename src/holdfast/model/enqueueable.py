"""The kinds of values that can be enqueued: a job type with arguments, a `NewJob`, or a job type by name."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.errors import Invalid
from holdfast.model.job import NewJob


class MakesJobs(Protocol):
    """A job type of an app: makes a job from the arguments of its function."""

    def new_job(self, *args: Any, **kwargs: Any) -> NewJob: ...


def new_job_of(job: MakesJobs | NewJob | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    if isinstance(job, str):
        if args:
            raise Invalid("a job type that is given by name takes keyword arguments only", code="invalid_payload")
        return NewJob(type=job, payload=kwargs)
    return job if isinstance(job, NewJob) else job.new_job(*args, **kwargs)
