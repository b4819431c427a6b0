"""What becomes of a job that meets an error: transient or permanent, with the codes of this service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from holdfast import Permanent, Retry
from holdfast.errors import LeaseLost, ObjectNotFound, StorageError
from holdfast.workloads.images.cdn import CdnUnavailable
from holdfast.workloads.images.extension import processing_errors
from holdfast.workloads.images.faults import INTERNAL, MESSAGES, ORIGINAL_MISSING, OUT_OF_MEMORY, ImageFault

# How the platform treats the codes of errors: the throttled ones want a longer pause.
TREATED: dict[str, Literal["throttled"]] = {"storage_throttled": "throttled", "cdn_throttled": "throttled"}
# A process that used up its CPU time would do so again: the image is decoded anew in each attempt.
TREATED_IN_PROCESSING = {**TREATED, "E_CPU_LIMIT": "permanent"}


@contextmanager
def reported() -> Iterator[None]:
    """Around the work of a job: the errors that the service knows become outcomes."""
    try:
        yield
    except Exception as error:
        found = outcome_of(error)
        if found is None:
            raise
        raise found from error


@contextmanager
def counted() -> Iterator[None]:
    """Count the errors in the metric of image processing, by the code that becomes of them. A lost lease is none: the
    image is processed elsewhere."""
    try:
        yield
    except LeaseLost:
        raise
    except Exception as error:
        found = outcome_of(error)
        processing_errors.add(1, INTERNAL if found is None else found.code)
        raise


def outcome_of(error: Exception) -> Permanent | Retry | None:
    match error:
        case ImageFault():
            return Permanent(error.code, error.message)
        case MemoryError():
            return Permanent(OUT_OF_MEMORY, MESSAGES[OUT_OF_MEMORY])
        case ObjectNotFound():
            return Permanent(ORIGINAL_MISSING, MESSAGES[ORIGINAL_MISSING])
        case StorageError():  # credentials and buckets are mended while jobs wait, so none of them is permanent
            return Retry(error.code, MESSAGES.get(error.code, ""))
        case CdnUnavailable():
            verdict = Permanent if error.permanent else Retry
            return verdict(error.code, error.message)
    return None
