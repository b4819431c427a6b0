"""Purges images from the caches of a CloudFront distribution. Credentials are those of the AWS library's defaults."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from holdfast.clock import Clock
from holdfast.workloads.images.extension import cdn_errors, cdn_seconds
from holdfast.workloads.images.settings import Settings

WILDCARDS_MAX = 15  # of a distribution, in progress at one time: the quota of CloudFront
REGION = "us-east-1"  # where CloudFront is, unless the configured region is of another partition
CONNECT_SECONDS, READ_SECONDS = 2.0, 10.0
CALL_SECONDS = 30.0  # with the one retry: neither timeout limits the lookup of the host, nor a response in small pieces
OPERATION = "create_invalidation"

TAKEN = "InvalidationBatchAlreadyExists"
MESSAGES = {
    "cdn_unavailable": "CloudFront is unavailable",
    "cdn_throttled": "CloudFront throttled the request",
    "cdn_denied": "CloudFront rejected the request",
    "cdn_not_found": "CloudFront does not know the distribution",
}
# The setting names a distribution that does not exist. `cdn_denied` is transient: operators repair a policy or a key
# while the jobs wait.
PERMANENT = ("cdn_not_found",)

_THROTTLED = re.compile(r".*Throttl.*|TooMany.*|RequestLimitExceeded|SlowDown")
_TIMED_OUT = re.compile(r"RequestTimeout.*")  # its status is 400
_REASON = re.compile(r"[A-Za-z0-9]{1,64}")  # a label of metrics, and shown to clients

log = logging.getLogger(__name__)


class CdnUnavailable(Exception):
    """The images are still in the caches. `message` is for clients; the log has the details. `reason` is the error code
    of AWS, or the name of an exception."""

    def __init__(self, code: str, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason
        self.permanent = code in PERMANENT


async def purge_images(settings: Settings, image_ids: Iterable[str], *, reference: str) -> str:
    """As `purge`, for the variants of these images. The origin of the distribution is the server of this service."""
    if not settings.has_cdn:
        return ""
    prefixes = [f"/images/{image_id}/" for image_id in image_ids]
    return await purge(settings.cdn, prefixes, reference=reference, endpoint_url=settings.cdn_endpoint_url)


async def purge(distribution: str, prefixes: Sequence[str], *, reference: str, endpoint_url: str = "") -> str:
    """Invalidate everything below the prefixes. Returns the id of the invalidation; the ids of several, with commas.

    A call that is repeated with its reference and its prefixes creates nothing new. Raises `CdnUnavailable`.
    """
    paths = sorted({f"{prefix.rstrip('/')}/*" for prefix in prefixes})
    batches = [paths[start : start + WILDCARDS_MAX] for start in range(0, len(paths), WILDCARDS_MAX)]
    numbered = [f"{reference}-{number}" for number in range(1, len(batches) + 1)]
    wanted = zip(batches, numbered if len(batches) > 1 else [reference], strict=False)
    return ",".join([await _invalidate(distribution, batch, name, endpoint_url) for batch, name in wanted])


async def _invalidate(distribution: str, paths: list[str], reference: str, endpoint_url: str) -> str:
    try:
        return await _create_invalidation(distribution, paths, reference, endpoint_url)
    except CdnUnavailable as error:
        if error.reason != TAKEN:
            raise
    # An earlier attempt purged other images under this reference. The new name depends on the paths alone, so that
    # repeating this call creates nothing new either.
    digest = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16]
    return await _create_invalidation(distribution, paths, f"{reference}-{digest}", endpoint_url)


async def _create_invalidation(distribution: str, paths: list[str], reference: str, endpoint_url: str) -> str:
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

    batch = {"Paths": {"Quantity": len(paths), "Items": paths}, "CallerReference": reference}
    with _translated_errors(distribution):
        async with _client(endpoint_url) as client, asyncio.timeout(CALL_SECONDS):
            with _measured():
                answer = await client.create_invalidation(DistributionId=distribution, InvalidationBatch=batch)
        if "Id" not in answer.get("Invalidation", {}):
            raise ResponseParserError("the response has no invalidation")
        return str(answer["Invalidation"]["Id"])


def _client(endpoint_url: str) -> Any:
    """One for each call: a client belongs to an event loop, and takes 5 ms when the session has loaded the API."""
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]

    retries = {"mode": "standard", "total_max_attempts": 2}  # then the job is retried
    config = AioConfig(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries=retries)
    session = _session()
    region = session.get_config_variable("region") or REGION
    return session.create_client("cloudfront", region, endpoint_url=endpoint_url or None, config=config)


@cache
def _session() -> Any:
    from aiobotocore.session import get_session  # type: ignore[import-untyped]

    return get_session()


@contextlib.contextmanager
def _measured() -> Iterator[None]:
    clock = Clock()
    started = clock.monotonic()
    try:
        yield
    finally:
        cdn_seconds.observe(clock.monotonic() - started, OPERATION)


@contextlib.contextmanager
def _translated_errors(distribution: str) -> Iterator[None]:
    """AWS errors as `CdnUnavailable`, without hosts, accounts and requests: clients may read it."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
    from botocore.parsers import ResponseParserError

    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError, OSError) as error:
        answer = error.response if isinstance(error, ClientError) else {}
        reason = _reason(error, answer)
        code = _code_of_answer(answer, reason) if answer else _code_without_answer(error)
        cdn_errors.add(1, OPERATION, reason)
        request = answer.get("ResponseMetadata", {}).get("RequestId", "unknown")
        log.warning("CloudFront distribution %s: %s failed: %s (request %s)", distribution, OPERATION, error, request)
        raise CdnUnavailable(code, f"{MESSAGES[code]} ({reason})", reason=reason) from None


def _reason(error: Exception, answer: dict[str, Any]) -> str:
    reason = str(answer.get("Error", {}).get("Code", type(error).__name__))
    return reason if _REASON.fullmatch(reason) else "unknown"


def _code_of_answer(answer: dict[str, Any], reason: str) -> str:
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status == 429 or _THROTTLED.fullmatch(reason):
        return "cdn_throttled"
    if status == 404:
        return "cdn_not_found"
    return "cdn_denied" if 400 <= status < 500 and not _TIMED_OUT.fullmatch(reason) else "cdn_unavailable"


def _code_without_answer(error: Exception) -> str:
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError, ProfileNotFound

    keyless = isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound)
    return "cdn_denied" if keyless else "cdn_unavailable"
