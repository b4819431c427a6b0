"""How often a request is repeated, and how long to wait before: full jitter, and never sooner than the server says."""

from __future__ import annotations

from holdfast.backoff import Backoff
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable, TooMany
from holdfast.ids import Ids

FIRST_SECONDS, MOST_SECONDS = 0.2, 10.0
SAID_SECONDS_MAX = 60.0  # a server that wants more than this is not waited for


class RetryPolicy:
    """Of one request. `safe`: to do it twice is to do it once, so that a lost answer may be asked for again."""

    def __init__(self, retries: int, ids: Ids, *, safe: bool = True) -> None:
        self._retries, self._backoff = retries, Backoff(ids, FIRST_SECONDS, MOST_SECONDS, jitter=1)
        self._kinds = (TooMany, StoreUnavailable, OutcomeUnknown) if safe else (TooMany, StoreUnavailable)

    def after(self, failure: HoldfastError) -> float:
        """How long to wait before the next try; raises the failure where there is none."""
        said = _said(failure)
        if not isinstance(failure, self._kinds) or self._backoff.failures >= self._retries or said > SAID_SECONDS_MAX:
            raise failure
        return said + self._backoff.next()

    def renew(self) -> None:
        """It got somewhere: the next failure is the first again."""
        self._backoff.reset()


def _said(failure: HoldfastError) -> float:
    return failure.retry_after if isinstance(failure, TooMany) else float(failure.fields.get("retry_after", 0))
