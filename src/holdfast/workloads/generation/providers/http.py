"""HTTP for providers: calls of one API with its key, and downloads of images without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import UNSET

from holdfast.clock import Clock
from holdfast.net import (
    DEFAULT_HEADERS,
    AnswerTooLarge,
    EgressRules,
    GuardedClient,
    Limits,
    OutboundError,
    StreamedResponse,
)
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.providers.answers import Answer, decoded, shown
from holdfast.workloads.generation.providers.base import Made
from holdfast.workloads.generation.providers.errors import bad_answer, image_refusal, no_answer, refusal, too_large
from holdfast.workloads.generation.providers.images import first_image, from_base64
from holdfast.workloads.generation.settings import Settings

CONNECT_SECONDS = 10.0
REDIRECTS_MAX = 5  # of the URL of an image; an API is not expected to redirect
BESIDE_BYTES = 1_048_576  # of JSON around an image


class ProviderHttp:
    """Requests use new connections: a POST over one that the server has closed meanwhile would fail."""

    def __init__(self, url: str, key: str, settings: Settings) -> None:
        self.url, self._key, self._clock = url.rstrip("/"), key.strip(), Clock()
        self._seconds, self._most = settings.provider_timeout_seconds, settings.max_image_bytes
        self.rules = EgressRules(trusted=[url], allow=settings.networks)
        authorization = {"authorization": f"Bearer {self._key}"} if self._key else {}
        headers = {**DEFAULT_HEADERS, "accept": "application/json", **authorization}
        self._api = GuardedClient(
            self.rules, limits=self._limits(self._most * 4 // 3 + BESIDE_BYTES, 0), headers=headers
        )
        self._images = GuardedClient(self.rules, limits=self._limits(self._most, REDIRECTS_MAX))

    def _limits(self, body_bytes: int, redirects: int) -> Limits:
        return Limits(
            connect_seconds=min(CONNECT_SECONDS, self._seconds),
            read_seconds=self._seconds,
            total_seconds=self._seconds,
            body_bytes=body_bytes,
            redirects=redirects,
            idle_seconds=0,
        )

    async def close(self) -> None:
        await self._api.close()
        await self._images.close()

    @asynccontextmanager
    async def deadline(self, seconds: float | None = None) -> AsyncIterator[None]:
        """For all requests of one operation together."""
        seconds = seconds or self._seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise ProviderError("provider_timeout", f"not finished within {seconds:g} s", "transient") from None

    async def call(self, method: str, url: str, *, json: Any = UNSET, key: str = "") -> Answer:
        """A request to the API, with its idempotency key."""
        headers = {"idempotency-key": key} if key else {}
        return await self._exchange(self._api, method, url, headers=headers, json=json)

    def accepted(self, answer: Answer, *, creating: bool) -> dict[str, Any]:
        """The object of a 2xx answer; raises the error of any other."""
        if not 200 <= answer.status < 300:
            raise refusal(answer, self._clock.now(), secret=self._key, creating=creating)
        found = decoded(answer.body)
        if not isinstance(found, dict):
            kind = shown(answer.headers.get("content-type", "no content type"), self._key)
            raise bad_answer(f"the answer {answer.status} is no JSON object ({kind})")
        return found

    async def made(self, output: Any, cost_micros: int) -> Made:
        """The first image in the output of an API. Its errors have the cost: it is paid whether or not it comes."""
        try:
            return Made(await self.image(output), cost_micros)
        except ProviderError as error:
            error.cost_micros = cost_micros
            raise

    async def image(self, output: Any) -> bytes:
        """The bytes of the first image in the output of an API."""
        found = first_image(output)
        if found is None:
            raise bad_answer("the answer has no image")
        if found.url:
            data = await self._download(found.url)
        else:
            data = await asyncio.to_thread(from_base64, found.base64, self._most)
        if not data:
            raise bad_answer("the image is empty")
        if len(data) > self._most:
            raise too_large(self._most)
        return data

    async def _download(self, url: str) -> bytes:
        answer = await self._exchange(self._images, "GET", url)
        if not 200 <= answer.status < 300:
            raise image_refusal(answer, self._clock.now())
        return answer.body

    async def _exchange(
        self,
        client: GuardedClient,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = UNSET,
    ) -> Answer:
        try:
            async with client.stream(method, url, headers=headers, json=json) as came:
                return Answer(came.status, came.headers, await self._body(came))
        except OutboundError as error:
            raise no_answer(error) from None

    async def _body(self, came: StreamedResponse) -> bytes:
        try:
            return await came.read()
        except AnswerTooLarge:
            if 200 <= came.status < 300:
                raise too_large(self._most) from None
            return b""

    def shown(self, text: str) -> str:
        return shown(text, self._key)
