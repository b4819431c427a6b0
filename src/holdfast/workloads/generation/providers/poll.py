"""Images from an API like that of Replicate: a prediction is created, and then polled until it ends."""

from __future__ import annotations

import contextlib
import re
from typing import Any
from urllib.parse import quote

from holdfast.clock import Clock
from holdfast.errors import AddressRefused
from holdfast.workloads.generation.faults import PROVIDER_REJECTED, ProviderError
from holdfast.workloads.generation.providers.answers import Answer, reported_error, retry_after
from holdfast.workloads.generation.providers.base import ImageOrder, Made, Pending
from holdfast.workloads.generation.providers.errors import bad_answer, is_unsafe_text
from holdfast.workloads.generation.providers.http import ProviderHttp
from holdfast.workloads.generation.settings import Settings

POLL_SECONDS, POLL_SECONDS_MAX = 2.0, 30.0
CANCEL_SECONDS = 10.0
COST_MAX = 1_000_000  # of one image, in the currency of the provider
PATH_MAX = 500

RUNNING = {"queued", "starting", "pending", "processing", "running", "in_progress"}
SUCCEEDED = {"succeeded", "completed", "success"}
FAILED = {"failed", "error", "canceled", "cancelled", "aborted", "expired"}
REJECTED = {"rejected", "nsfw", "blocked", "moderated"}

_ID = re.compile(r"(?!\.{1,2}$)[!-~]{1,200}")


class PollProvider:
    """A task is the id of a prediction, and after a space the path of its URL, unless it is that of the API and the
    id."""

    name = "poll"

    def __init__(self, settings: Settings) -> None:
        self._http, self._clock = ProviderHttp(settings.poll_url, settings.poll_key, settings), Clock()
        self._api = self._http.rules.check(self._http.url)
        self._cost_micros = settings.poll_cost_micros

    async def create(self, order: ImageOrder) -> Made | Pending:
        async with self._http.deadline():
            answer = await self._http.call("POST", self._http.url, json=_request(order), key=order.key)
            found = self._http.accepted(answer, creating=True)
            return await self._made(found) or self._pending(self._task(found), answer)

    async def poll(self, order: ImageOrder, task: str) -> Made | Pending:
        async with self._http.deadline():
            answer = await self._http.call("GET", self._url(task))
            if answer.status in (404, 410):
                raise _failed("the provider does not know the prediction any more")
            found = self._http.accepted(answer, creating=False)
            return await self._made(found) or self._pending(task, answer)

    async def cancel(self, task: str) -> None:
        with contextlib.suppress(ProviderError):
            async with self._http.deadline(CANCEL_SECONDS):
                await self._http.call("POST", f"{self._url(task)}/cancel")

    async def close(self) -> None:
        await self._http.close()

    async def _made(self, found: dict[str, Any]) -> Made | None:
        """None: the prediction has not ended. Raises if it has ended without an image."""
        status = str(found.get("status")).lower().replace("-", "_")
        if status in SUCCEEDED:
            output = {name: found.get(name) for name in ("output", "images", "data")}
            return await self._http.made(output, self._cost(found))
        if status not in RUNNING:
            raise self._without_image(status, found)
        return None

    def _without_image(self, status: str, found: dict[str, Any]) -> ProviderError:
        reported = reported_error(found)
        said = self._http.shown(f"{status}: {reported.text}")
        if status in REJECTED or (status in FAILED and is_unsafe_text(reported)):
            return ProviderError(PROVIDER_REJECTED, f"the prediction is {said}", "rejected", definite=True)
        return _failed(f"the prediction is {said}") if status in FAILED else bad_answer(f"unknown status {said}")

    def _cost(self, found: dict[str, Any]) -> int:
        for each in (found.get("metrics"), found):
            cost = each.get("cost") if isinstance(each, dict) else None
            if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= COST_MAX:
                return round(cost * 1_000_000)
        return self._cost_micros

    def _pending(self, task: str, answer: Answer) -> Pending:
        return Pending(task, retry_after(answer.headers, self._clock.now(), POLL_SECONDS_MAX) or POLL_SECONDS)

    def _task(self, found: dict[str, Any]) -> str:
        task = found.get("id")
        if not isinstance(task, str) or not _ID.fullmatch(task):
            raise bad_answer("the prediction has no id")
        path = self._path_in(found.get("urls"))
        return task if path in (None, self._http.rules.check(self._url(task)).path) else f"{task} {path}"

    def _path_in(self, urls: Any) -> str | None:
        """Of the URL to poll, if it belongs to the same API: no other one gets the key."""
        url = urls.get("get") if isinstance(urls, dict) else None
        if not isinstance(url, str):
            return None
        try:
            given = self._http.rules.check(url)
        except AddressRefused:
            return None
        return given.path if given.origin == self._api.origin and len(given.path) <= PATH_MAX else None

    def _url(self, task: str) -> str:
        name, _, path = task.partition(" ")
        return self._api._replace(path=path).url if path else f"{self._http.url}/{quote(name, safe='')}"


def _request(order: ImageOrder) -> dict[str, Any]:
    wanted = {
        "prompt": order.prompt,
        "negative_prompt": order.negative_prompt,
        "width": order.width,
        "height": order.height,
        "seed": order.seed,
        "style": order.style,
        "num_outputs": 1,
    }
    request: dict[str, Any] = {"input": {name: value for name, value in wanted.items() if value is not None}}
    if order.webhook_url:
        request |= {"webhook": order.webhook_url, "webhook_events_filter": ["completed"]}
    return request


def _failed(message: str) -> ProviderError:
    return ProviderError("provider_failed", message, "transient", definite=True)
