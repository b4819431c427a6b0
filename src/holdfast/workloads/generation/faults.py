"""What can go wrong with a generation, each with the stable code that clients see."""

from __future__ import annotations

from typing import Literal

PROMPT_REJECTED = "prompt_rejected"
PROVIDER_REJECTED = "provider_rejected"
IMAGE_REJECTED = "image_rejected"
INTERNAL = "internal_error"  # one that the service does not know

Kind = Literal["transient", "throttled", "permanent", "rejected"]

# What clients see of errors: the messages of providers and of the storage may name hosts, keys and words.
MESSAGES = {
    PROMPT_REJECTED: "the prompt is not allowed",
    PROVIDER_REJECTED: "the provider refused the request for safety reasons",
    IMAGE_REJECTED: "the produced image is not allowed",
    "provider_timeout": "the provider did not respond in time",
    "provider_unavailable": "the provider is unavailable",
    "provider_throttled": "the provider asks for fewer requests",
    "provider_quota": "the quota at the provider is used up",
    "provider_denied": "the provider denied access",
    "provider_refused": "the provider cannot do what was requested",
    "provider_failed": "the provider failed to make the image",
    "provider_bad_answer": "the provider returned no image that can be used",
    "classifier_unavailable": "the prompt could not be checked",
    "moderator_unavailable": "the image could not be checked",
    "image_too_large": "the image of the provider is too large",
    "canceled": "canceled",
    "storage_unavailable": "the storage is unavailable",
    "storage_throttled": "the storage asks for fewer requests",
    "storage_denied": "the storage denied access",
    "storage_error": "the storage failed",
    "timeout": "the generation did not finish in time",
    "timeout_soft": "the worker that generated the image was lost",
    "E_TIMEOUT": "the worker that generated the image was lost, in its last attempt",
    "poison": "the generation ended the process that worked on it several times",
}


class ProviderError(Exception):
    """`definite`: the provider says that it has made no image and never will under this idempotency key, so the next
    attempt uses a new one. `cost_micros`: it was made and is paid, but could not be fetched. The message is for
    operators."""

    cost_micros: int | None = None

    def __init__(
        self, code: str, message: str, kind: Kind, *, retry_after: float | None = None, definite: bool = False
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.kind = code, message, kind
        self.retry_after, self.definite = retry_after, definite
