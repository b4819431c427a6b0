"""One message, sent once: to an address that was checked, with the name it was checked for, within limits (SEC-31)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx2

from holdfast.webhooks.egress import Egress, Refused, Target, bracketed

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0
EXCERPT_SECONDS = 2.0  # the status has been told: what follows is for people, and not worth a long wait
ANSWER_BYTES_MAX = 65_536
EXCERPT_MAX = 500


class Answer(NamedTuple):
    """What came back; or, with a `status` of None, why nothing did."""

    status: int | None
    error: str | None = None
    excerpt: str | None = None
    retry_after: float | None = None


class Sender:
    """No cookies, no redirects, nothing from the environment. Each message has a connection of its own: one made for
    another name at the same address would be kept by that address alone."""

    def __init__(self, egress: Egress, *, tls: ssl.SSLContext | None = None) -> None:
        self.egress = egress
        self._transport = httpx2.AsyncHTTPTransport(
            verify=tls or True,
            trust_env=False,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def close(self) -> None:
        await self._transport.aclose()

    async def send(self, target: Target, headers: Mapping[str, str], body: bytes, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                return await self._post(target, headers, body, seconds)
        except Refused as refused:
            return Answer(None, str(refused))
        except TimeoutError:
            return Answer(None, f"no answer within {seconds:g} s")
        except httpx2.HTTPError as error:
            return Answer(None, _why(error))

    async def _post(self, target: Target, headers: Mapping[str, str], body: bytes, seconds: float) -> Answer:
        *others, last = await self.egress.addresses(target)
        for address in others:
            try:
                return await self._post_to(address, target, headers, body, seconds)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # nobody there: another of its addresses may be better
        return await self._post_to(last, target, headers, body, seconds)

    async def _post_to(
        self, address: str, target: Target, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> Answer:
        request = httpx2.Request(
            "POST",
            f"{target.scheme}://{bracketed(address)}:{target.port}{target.path}",
            headers={"content-type": "application/json", **headers, "host": target.authority},
            content=body,
            extensions={
                "sni_hostname": target.host,
                "timeout": {"connect": CONNECT_SECONDS, "read": seconds, "write": seconds, "pool": seconds},
            },
        )
        response = await self._transport.handle_async_request(request)
        try:
            excerpt = await _excerpt(response)
        finally:
            await response.aclose()
        return Answer(response.status_code, None, excerpt, _retry_after(response))


async def _excerpt(response: httpx2.Response) -> str | None:
    """The beginning of the body as it came: never unpacked, and not waited for."""
    read = bytearray()
    try:
        async with asyncio.timeout(EXCERPT_SECONDS):
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) >= ANSWER_BYTES_MAX:
                    break
    except (TimeoutError, httpx2.HTTPError):
        pass
    text = "".join(
        letter if letter.isprintable() else " " for letter in read[: 4 * EXCERPT_MAX].decode(errors="replace")
    )
    return text[:EXCERPT_MAX].strip() or None


def _retry_after(response: httpx2.Response) -> float | None:
    said = response.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() and len(said) < 10 else None


def _why(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {CONNECT_SECONDS:g} s"
    said = "".join(letter for letter in str(error) if letter.isprintable())
    return f"{type(error).__name__}: {said}"[:EXCERPT_MAX]
