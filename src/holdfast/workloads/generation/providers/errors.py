"""What an answer without an image means: whether a retry helps, when, and under which idempotency key."""

from __future__ import annotations

import re
from datetime import datetime

from holdfast.errors import OutboundError, OutboundTimeout, Unreachable
from holdfast.workloads.generation.faults import PROVIDER_REJECTED, Kind, ProviderError
from holdfast.workloads.generation.providers.answers import (
    SCANNED_MAX,
    Answer,
    ReportedError,
    decoded,
    reported_error,
    retry_after,
    shown,
)

RETRY_AFTER_MAX = 3600.0

_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_limit_user_error", "billing_not_active"}
_UNSAFE_WORD = re.compile(
    r"content.?(policy|filter|moderation)|moderation|safety|nsfw|unsafe|prohibited.?content|responsible.?ai"
)
_UNSAFE_TEXT = re.compile(r"(?i)\bnsfw\b|\bsafety\b|content.policy|\bmoderat(ion|ed)\b")
_REFUSED_TEXT = re.compile(r"(?i)\bnsfw\b|\bsafety (?:system|filter|check)|\bcontent policy\b")  # for want of a code
_SAME_KEY = {408, 409, 425}  # too slow, the same request in progress, too early


def is_unsafe(reported: ReportedError) -> bool:
    """Whether it is the verdict of a safety system, by codes or types, or by words that stand in no other error."""
    return any(map(_UNSAFE_WORD.search, reported.words)) or _REFUSED_TEXT.search(reported.text) is not None


def is_unsafe_text(reported: ReportedError) -> bool:
    return is_unsafe(reported) or _UNSAFE_TEXT.search(reported.text) is not None


def bad_answer(message: str) -> ProviderError:
    return ProviderError("provider_bad_answer", message, "transient")


def too_large(most: int) -> ProviderError:
    return ProviderError("image_too_large", f"the image has more than {most} bytes", "permanent")


def refusal(answer: Answer, now: datetime, *, secret: str, creating: bool) -> ProviderError:
    """The error of an answer whose status is not 2xx. `creating`: the request was to make an image, so that its refusal
    means that there is none."""
    reported = reported_error(decoded(answer.body))
    code, kind = _meaning(answer.status, reported)
    text = shown(reported.text or answer.body[:SCANNED_MAX].decode(errors="replace"), secret)
    return ProviderError(
        code,
        f"the provider answered with {answer.status}: {text}"
        if text
        else f"the provider answered with {answer.status}",
        kind,
        retry_after=retry_after(answer.headers, now, RETRY_AFTER_MAX) if kind in ("transient", "throttled") else None,
        definite=creating and code in (PROVIDER_REJECTED, "provider_refused"),
    )


def _meaning(status: int, reported: ReportedError) -> tuple[str, Kind]:
    if status == 402 or (400 <= status < 500 and reported.words & _QUOTA):
        return "provider_quota", "permanent"
    if status in (400, 403, 422) and is_unsafe(reported):
        return PROVIDER_REJECTED, "rejected"
    if status == 429:
        return "provider_throttled", "throttled"
    if status in (401, 403):
        return "provider_denied", "transient"
    if status >= 500 or status in _SAME_KEY:
        return "provider_unavailable", "transient"
    if status >= 400:
        return "provider_refused", "permanent"
    return "provider_bad_answer", "transient"


def image_refusal(answer: Answer, now: datetime) -> ProviderError:
    """The error of a URL of an image that has none; its text is of no use."""
    code, kind = _meaning(answer.status, ReportedError(frozenset(), ""))
    if code not in ("provider_unavailable", "provider_throttled"):
        code, kind = "provider_bad_answer", "transient"
    seconds = retry_after(answer.headers, now, RETRY_AFTER_MAX)
    return ProviderError(code, f"the URL of the image answered with {answer.status}", kind, retry_after=seconds)


def no_answer(error: OutboundError) -> ProviderError:
    """Without a response it is unknown whether there is an image: the next attempt uses the same key."""
    kinds = {OutboundTimeout: "provider_timeout", Unreachable: "provider_unavailable"}
    return ProviderError(kinds.get(type(error), "provider_bad_answer"), error.message, "transient")
