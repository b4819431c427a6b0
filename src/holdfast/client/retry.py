"""Retry policy of requests: exponential backoff with full jitter, and never sooner than Retry-After."""

from __future__ import annotations

from holdfast.backoff import Backoff
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable, TooMany
from holdfast.ids import Ids

FIRST_SECONDS, MOST_SECONDS = 0.2, 10.0
RETRY_AFTER_MAX_SECONDS = 60.0  # a longer Retry-After is not waited for


class RetryPolicy:
    """For one request. `safe`: it is idempotent, so it can be repeated after a lost response."""

    def __init__(self, retries: int, ids: Ids, *, safe: bool = True) -> None:
        self._retries, self._backoff = retries, Backoff(ids, FIRST_SECONDS, MOST_SECONDS, jitter=1)
        self._kinds = (TooMany, StoreUnavailable, OutcomeUnknown) if safe else (TooMany, StoreUnavailable)

    def after(self, failure: HoldfastError) -> float:
        """Seconds to wait before the next attempt; raises the failure if there is none."""
        retry_after = _retry_after(failure)
        if (
            not isinstance(failure, self._kinds)
            or self._backoff.failures >= self._retries
            or retry_after > RETRY_AFTER_MAX_SECONDS
        ):
            raise failure
        return retry_after + self._backoff.next()

    def reset(self) -> None:
        """Reset after progress."""
        self._backoff.reset()


def _retry_after(failure: HoldfastError) -> float:
    return failure.retry_after if isinstance(failure, TooMany) else float(failure.fields.get("retry_after", 0))
