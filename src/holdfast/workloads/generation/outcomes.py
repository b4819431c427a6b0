"""What becomes of a job that meets an error: retried, failed or rejected, with the codes of this service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from holdfast import Permanent, Reject, Retry
from holdfast.errors import StorageError
from holdfast.workloads.generation.faults import MESSAGES, ProviderError

# How the platform treats the codes of errors: the throttled ones want a longer pause.
TREATED: dict[str, Literal["throttled"]] = {"provider_throttled": "throttled", "storage_throttled": "throttled"}


@contextmanager
def reported() -> Iterator[None]:
    """Around the work of a job: the errors that the service knows become outcomes."""
    try:
        yield
    except (ProviderError, StorageError) as error:
        raise outcome_of(error) from error


def outcome_of(error: ProviderError | StorageError) -> Permanent | Reject | Retry:
    """Clients see the message of the code; what the provider or the storage said is for operators."""
    if isinstance(error, StorageError):  # credentials and buckets are mended while jobs wait
        return Retry(error.code, MESSAGES.get(error.code, ""), context={"detail": error.full})
    message, context = MESSAGES.get(error.code, ""), {"detail": error.message}
    match error.kind:
        case "rejected":
            return Reject(error.code, message, context=context)
        case "permanent":
            return Permanent(error.code, message, context=context)
    return Retry(error.code, message, after=error.retry_after, context=context)
