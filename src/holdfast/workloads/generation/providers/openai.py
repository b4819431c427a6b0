"""Images from an API like that of OpenAI: one request, which ends when the image is made."""

from __future__ import annotations

from typing import Any

from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.providers.base import ImageOrder, Made, Pending, whole_prompt
from holdfast.workloads.generation.providers.http import ProviderHttp
from holdfast.workloads.generation.settings import Settings


class OpenAIProvider:
    name = "openai"

    def __init__(self, settings: Settings) -> None:
        self._http = ProviderHttp(settings.openai_url, settings.openai_key, settings)
        self._model, self._cost_micros = settings.openai_model, settings.openai_cost_micros

    async def create(self, order: ImageOrder) -> Made:
        async with self._http.deadline():
            url = f"{self._http.url}/images/generations"
            answer = await self._http.call("POST", url, json=self._request(order), key=order.key)
            found = self._http.accepted(answer, creating=True)
            return await self._http.made(found.get("data"), self._cost_micros)

    def _request(self, order: ImageOrder) -> dict[str, Any]:
        """The models `gpt-image-*` refuse `response_format`; the others return a URL without it."""
        size = f"{order.width}x{order.height}"
        wanted = {
            "model": self._model,
            "prompt": whole_prompt(order.prompt, order.style, order.negative_prompt),
            "n": 1,
            "size": size,
        }
        return wanted | ({"response_format": "b64_json"} if self._model.startswith("dall-e-") else {})

    async def poll(self, order: ImageOrder, task: str) -> Made | Pending:
        raise ProviderError("provider_failed", "this API has no tasks", "transient", definite=True)

    async def cancel(self, task: str) -> None:
        """There are no tasks: a request that is abandoned may still be charged."""

    async def close(self) -> None:
        await self._http.close()
