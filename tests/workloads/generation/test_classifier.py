"""Classifiers of prompts: the plug-ins, and the adapter of moderation APIs against a server that fails in every way."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import Invalid
from holdfast.workloads.generation.guard import classifier, openai_classifier
from holdfast.workloads.generation.guard.classifier import ClassifierUnavailable, Verdict, load_classifier
from holdfast.workloads.generation.guard.openai_classifier import LIMITS, OpenAIClassifier
from holdfast.workloads.generation.settings import Settings
from tests.webhooks.receiver import Answering, Got, Receiver, answer, receiving


class Example:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with receiving() as server:
        yield server


@pytest.fixture
async def openai(server: Receiver) -> AsyncIterator[OpenAIClassifier]:
    limits = replace(LIMITS, read_seconds=0.5, total_seconds=1, body_bytes=1000)
    made = OpenAIClassifier(server.url, "the-key", limits=limits)
    yield made
    await made.close()


def says(body: Any, status: int = 200, **headers: str) -> Answering:
    return answer(status, json.dumps(body).encode(), **headers)


def result(flagged: bool, **categories: bool | None) -> dict[str, Any]:
    return {"flagged": flagged, "categories": categories}


async def hang(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def hang_up(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.close()


# -- plug-ins ----------------------------------------------------------------------------------------------------------


def test_none_is_loaded_unless_one_is_named() -> None:
    assert load_classifier(Settings()) is None


async def test_the_one_for_openai_is_installed() -> None:
    made = load_classifier(Settings(classifier="openai", classifier_url="http://127.0.0.1:9/v1"))
    assert isinstance(made, OpenAIClassifier)
    await made.close()


def test_the_one_for_openai_needs_an_address() -> None:
    with pytest.raises(Invalid, match="set HOLDFAST_GENERATION_CLASSIFIER_URL"):
        load_classifier(Settings(classifier="openai"))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plug-ins of other packages."""
    monkeypatch.setitem(sys.modules, "example_plugin", sys.modules[__name__])
    values = {"example": "example_plugin:Example", "broken": "example_plugin:missing", "gone": "no_such_module:make"}
    found = EntryPoints(EntryPoint(name, value, classifier.GROUP) for name, value in values.items())
    monkeypatch.setattr(classifier, "entry_points", lambda group: found)
    classifier._factory.cache_clear()
    yield
    classifier._factory.cache_clear()


@pytest.mark.usefixtures("installed")
def test_a_plug_in_is_made_of_the_settings() -> None:
    settings = Settings(classifier="example")
    made = load_classifier(settings)
    assert isinstance(made, Example)
    assert made.settings is settings


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown", "no classifier 'unknown'; installed: broken, example, gone"),
        ("broken", "'broken' cannot be loaded"),
        ("gone", "'gone' cannot be loaded"),
    ],
)
def test_a_name_that_cannot_be_loaded_is_an_error(name: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        load_classifier(Settings(classifier=name))


# -- the adapter of moderation APIs ------------------------------------------------------------------------------------


async def test_the_prompt_is_sent_with_the_key(server: Receiver, openai: OpenAIClassifier) -> None:
    server.otherwise = says({"id": "modr-1", "model": "m", "results": [result(False, violence=False)]})
    assert await openai.classify("a castle, größer") == Verdict(True)
    (got,) = server.got
    assert got.head == "POST /hook/moderations HTTP/1.1"
    assert got.headers["authorization"] == "Bearer the-key"
    assert got.said == {"input": "a castle, größer"}


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([result(False)], Verdict(True)),
        ([result(False, violence=True)], Verdict(True)),
        ([result(True, hate=False, violence=True, sexual=True)], Verdict(False, "violence")),
        ([result(True, **{"illicit": None, "sexual/minors": True})], Verdict(False, "sexual/minors")),
        ([result(False), result(True, sexual=True)], Verdict(False, "sexual")),
        ([result(True)], Verdict(False, "flagged")),
        ([{"flagged": True}], Verdict(False, "flagged")),
        ([result(True, **{"a prompt, in a category": True})], Verdict(False, "flagged")),
    ],
)
async def test_a_flagged_prompt_is_not_allowed(
    server: Receiver, openai: OpenAIClassifier, results: list[dict[str, Any]], verdict: Verdict
) -> None:
    server.otherwise = says({"results": results})
    assert await openai.classify("x") == verdict


OVERLOADED = {"error": {"message": "slow down"}}
FAULTS: dict[str, tuple[Answering, str, float | None, int]] = {  # message, seconds to wait, number of requests
    "throttling": (says(OVERLOADED, 429, retry_after="7"), "answered with 429", 7, 1),
    "throttling for long": (says(OVERLOADED, 429, retry_after="1e9"), "answered with 429", None, 1),
    "throttling for years": (says(OVERLOADED, 429, retry_after="999999999"), "answered with 429", 3600, 1),
    "a server error": (answer(503, b"<html>", retry_after="Fri, 31 Dec 1999 23:59:59 GMT"), "with 503", None, 1),
    "a wrong key": (says({"error": {}}, 401), "answered with 401", None, 1),
    "a redirect": (answer(307, location="http://127.0.0.1:1/"), "answered with 307", None, 1),
    "not JSON": (answer(200, b"\xff<html>"), "not that of a moderation API", None, 1),
    "another document": (says({"results": "none"}), "not that of a moderation API", None, 1),
    "no result": (says({"results": []}), "no result", None, 1),
    "too large": (answer(200, b" " * 2000), "did not answer", None, 1),
    "silence": (hang, "did not answer", None, 1),
    "a closed connection": (hang_up, "did not answer", None, 2),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_without_a_verdict_the_classifier_is_unavailable(
    server: Receiver, openai: OpenAIClassifier, fault: str
) -> None:
    server.otherwise, message, seconds, requests = FAULTS[fault]
    with pytest.raises(ClassifierUnavailable, match=message) as failed:
        await openai.classify("a secret castle")
    assert failed.value.retry_after == seconds
    assert len(server.got) == requests
    assert not [word for word in ("the-key", "castle", "slow down") if word in str(failed.value)]


async def test_a_lost_connection_is_retried_once(server: Receiver, openai: OpenAIClassifier) -> None:
    server.answers = [hang_up, says({"results": [result(False)]})]
    assert await openai.classify("x") == Verdict(True)


async def test_a_server_that_is_down_is_unavailable() -> None:
    made = openai_classifier.make(Settings(classifier_url="http://127.0.0.1:9"))
    with pytest.raises(ClassifierUnavailable, match="did not answer"):
        await made.classify("x")
    await made.close()


async def test_without_a_key_no_header_is_sent(server: Receiver) -> None:
    server.otherwise = says({"results": [result(False)]})
    made = openai_classifier.make(Settings(classifier_url=f"{server.url}/"))
    await made.classify("x")
    await made.close()
    assert "authorization" not in server.got[0].headers
    assert server.got[0].head.startswith("POST /hook/moderations ")
