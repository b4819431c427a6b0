"""Sends one webhook request to a checked address, with limits on time and response size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.errors import OutboundError
from holdfast.net import GuardedClient, Limits, StreamedResponse, Target
from holdfast.webhooks.egress import Egress

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0
EXCERPT_SECONDS = 2.0  # for the body after the status: it is only for display
RESPONSE_BYTES_MAX = 65_536
EXCERPT_MAX = 500


class DeliveryResponse(NamedTuple):
    """The response; with a `status` of None, the error."""

    status: int | None
    error: str | None = None
    excerpt: str | None = None
    retry_after: float | None = None


class WebhookSender:
    """No cookies, no redirects, only the given headers, and a new connection for each request."""

    def __init__(self, egress: Egress, *, tls: ssl.SSLContext | None = None) -> None:
        self.egress = egress
        self._client = GuardedClient(egress, headers={}, tls=tls)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, target: Target, headers: Mapping[str, str], body: bytes, seconds: float) -> DeliveryResponse:
        typed = {"content-type": "application/json", **headers}
        try:
            async with self._client.stream(
                "POST", target, headers=typed, body=body, limits=_limits(seconds)
            ) as response:
                return DeliveryResponse(response.status, None, await _excerpt(response), _retry_after(response))
        except OutboundError as error:
            return DeliveryResponse(None, error.reason)


def _limits(seconds: float) -> Limits:
    return Limits(
        connect_seconds=CONNECT_SECONDS,
        read_seconds=seconds,
        total_seconds=seconds,
        body_bytes=RESPONSE_BYTES_MAX,
        redirects=0,
        idle_seconds=0,
    )


async def _excerpt(response: StreamedResponse) -> str | None:
    """The beginning of the raw body, never decompressed, with a short time limit."""
    read = bytearray()
    try:
        async with asyncio.timeout(EXCERPT_SECONDS):
            async for chunk in response.raw_chunks():
                read += chunk
    except (TimeoutError, OutboundError):
        pass
    text = "".join(
        letter if letter.isprintable() else " " for letter in read[: 4 * EXCERPT_MAX].decode(errors="replace")
    )
    return text[:EXCERPT_MAX].strip() or None


def _retry_after(response: StreamedResponse) -> float | None:
    said = response.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() and len(said) < 10 else None
