"""The classifier `openai`: a moderation API that is compatible with that of OpenAI."""

from __future__ import annotations

import re

import msgspec

from holdfast.errors import Invalid, OutboundError, Unreachable
from holdfast.net import EgressRules, GuardedClient, Limits, Response
from holdfast.workloads.generation.guard.classifier import ClassifierUnavailable, Verdict
from holdfast.workloads.generation.settings import Settings

LIMITS = Limits(read_seconds=10, total_seconds=10, body_bytes=2**20, redirects=0)
RETRY_AFTER_MAX = 3600.0

_CATEGORY = re.compile(r"[a-z0-9_/-]{1,64}")
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")


class _Result(msgspec.Struct):
    flagged: bool
    categories: dict[str, bool | None] = {}


class _Answer(msgspec.Struct):
    results: list[_Result]


def make(settings: Settings) -> OpenAIClassifier:
    if not settings.classifier_url:
        raise Invalid("set HOLDFAST_GENERATION_CLASSIFIER_URL, the address of its API")
    return OpenAIClassifier(settings.classifier_url, settings.classifier_key)


class OpenAIClassifier:
    """The address comes from the operator: it may be private."""

    def __init__(self, url: str, key: str = "", *, limits: Limits = LIMITS) -> None:
        self._url = f"{url.rstrip('/')}/moderations"
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = GuardedClient(EgressRules(trusted=[url]), limits=limits)

    async def classify(self, prompt: str) -> Verdict:
        answer = await self._answer(prompt)
        if answer.status != 200:
            raise ClassifierUnavailable(f"the classifier answered with {answer.status}", _retry_after(answer))
        try:
            results = msgspec.json.decode(answer.body, type=_Answer).results
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ClassifierUnavailable("the answer of the classifier is not that of a moderation API") from None
        if not results:
            raise ClassifierUnavailable("the answer of the classifier has no result")
        return next((Verdict(False, _category(result)) for result in results if result.flagged), Verdict(True))

    async def close(self) -> None:
        await self._client.close()

    async def _answer(self, prompt: str) -> Response:
        try:
            try:
                return await self._post(prompt)
            except Unreachable:  # such as a kept connection that the server closed; a repetition does no harm
                return await self._post(prompt)
        except OutboundError as error:
            raise ClassifierUnavailable(f"the classifier did not answer: {error.message}") from error

    async def _post(self, prompt: str) -> Response:
        return await self._client.request("POST", self._url, headers=self._headers, json={"input": prompt})


def _category(result: _Result) -> str:
    named = next((name for name, applies in result.categories.items() if applies), "")
    return named if _CATEGORY.fullmatch(named) else "flagged"


def _retry_after(answer: Response) -> float | None:
    seconds = answer.headers.get("retry-after", "")
    return min(float(seconds), RETRY_AFTER_MAX) if _SECONDS.fullmatch(seconds) else None
