"""Plug-ins that check prompts and images: what they refuse, and what becomes of a generation while they fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.lifecycle import State
from holdfast.workloads.generation import jobs
from holdfast.workloads.generation.faults import MESSAGES
from holdfast.workloads.generation.guard import classifier as classifiers
from holdfast.workloads.generation.guard.classifier import ClassifierUnavailable, Verdict
from holdfast.workloads.generation.moderation import ImageVerdict, ModeratedImage
from tests.workloads.generation.running import Running, running, stub
from tests.workloads.generation.steps import ON_SQLITE

__all__ = ["running", "stub"]

SECRET_TEXT = "model server gpu7.internal.example"


class Plugin:
    """A moderator and a classifier that does what a test says."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.seen: list[Any] = []
        self.otherwise: Any = True

    async def _answer(self, asked: Any) -> Any:
        self.seen.append(asked)
        answer = self.answers.pop(0) if self.answers else self.otherwise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def moderate(self, image: ModeratedImage) -> ImageVerdict:
        answer = await self._answer(image)
        return ImageVerdict(True) if answer is True else ImageVerdict(False, str(answer))

    async def classify(self, prompt: str) -> Verdict:
        answer = await self._answer(prompt)
        return Verdict(True) if answer is True else Verdict(False, str(answer))

    async def close(self) -> None: ...


@pytest.fixture
def moderator(running: Running, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    plugin = Plugin()
    monkeypatch.setattr(jobs, "moderator", lambda: plugin)
    return plugin


@pytest.fixture
def classifier(running: Running, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    plugin = Plugin()
    made: Callable[[Any], Plugin] = lambda settings: plugin  # noqa: E731
    monkeypatch.setattr(classifiers, "_factory", lambda name: made)
    running.sets(classifier="ours")
    return plugin


async def safe_blocks(running: Running) -> list[dict[str, Any]]:
    return [line for line in await running.service.audit_lines() if line["action"] == "SAFE_BLOCK"]


# -- moderation of images ----------------------------------------------------------------------------------------------


@ON_SQLITE
async def test_a_moderator_sees_each_image_before_it_is_stored(running: Running, moderator: Plugin) -> None:
    made = await running.run("a pier", count=2)
    assert made["status"] == "completed"
    assert sorted(image.sha256 for image in moderator.seen) == sorted(asset["sha256"] for asset in made["assets"])
    assert {(image.prompt, image.width, image.content_type) for image in moderator.seen} == {
        ("a pier", 64, "image/png")
    }


async def test_an_image_that_is_refused_rejects_the_generation(running: Running, moderator: Plugin) -> None:
    moderator.answers = ["violence"]
    made = await running.run(count=3, key="mine")
    assert (made["status"], made["assets"], made["creditsCharged"]) == ("rejected", [], 3)
    assert made["error"] == {"code": "image_rejected", "message": MESSAGES["image_rejected"]}
    assert (await running.service.statement())[1:] == [("reserve", 3), ("forfeit", 3)]
    [line] = await safe_blocks(running)
    assert "image_rejected" in json.dumps(line)
    assert "violence" not in json.dumps(made)
    [attempt] = await running.attempts(made)
    assert attempt.error["context"]["detail"] == "violence"
    again = await running.service.accepted(count=3, key="mine")
    assert again["generationId"] == made["generationId"]
    await running.is_clean()
    assert running.service.files() == []


@ON_SQLITE
async def test_a_moderator_that_fails_shows_nothing(running: Running, moderator: Plugin) -> None:
    """The image is moderated in a later attempt, and not paid again."""
    moderator.answers = [RuntimeError(SECRET_TEXT), TimeoutError()]
    accepted = await running.service.accepted()
    async with running.service.working():
        job = await running.until_waiting(accepted)
        assert job.state is State.RETRYING
        shown = await running.service.generation(accepted["generationId"])
        assert shown["error"] == {"code": "moderator_unavailable", "message": MESSAGES["moderator_unavailable"]}
        assert running.service.files("originals/") == []
        made = await running.finish(accepted)
    assert (made["status"], made["retryCount"]) == ("completed", 2)
    assert running.paid() == {f"{accepted['jobId']}-0": 1}
    assert len(moderator.seen) == 3


@ON_SQLITE
async def test_a_moderator_that_never_works_is_a_dead_letter(running: Running, moderator: Plugin) -> None:
    moderator.otherwise = RuntimeError(SECRET_TEXT)
    made = await running.run(count=2)
    assert (made["status"], made["error"]["code"]) == ("dead_letter", "moderator_unavailable")
    assert await running.service.credits() == (100, 0, 100)
    assert SECRET_TEXT not in json.dumps(made) + json.dumps(await running.service.get(f"/jobs/{made['jobId']}"))
    assert SECRET_TEXT in json.dumps([attempt.error for attempt in await running.attempts(made)])
    await running.is_clean()
    assert running.service.files() == []


# -- classification of prompts -----------------------------------------------------------------------------------------


async def test_a_prompt_that_the_classifier_refuses_is_not_accepted(running: Running, classifier: Plugin) -> None:
    classifier.otherwise = "hate"
    before = running.service.rows()
    assert await running.service.rejected("a pier") == (422, "prompt_rejected")
    [line] = await safe_blocks(running)
    assert "hate" in json.dumps(line)
    after = running.service.rows()
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert all("audit" in name for name in changed), changed
    assert await running.service.credits() == (100, 0, 100)


@ON_SQLITE
async def test_the_answer_does_not_name_the_category(running: Running, classifier: Plugin) -> None:
    classifier.otherwise = "hate"
    assert "hate" not in (await running.service.create("a pier")).text


async def test_a_prompt_that_is_refused_at_dispatch_is_a_rejection(running: Running, classifier: Plugin) -> None:
    classifier.answers, classifier.otherwise = [True], "hate"
    made = await running.run("a pier", count=2)
    assert (made["status"], made["error"]["code"]) == ("rejected", "prompt_rejected")
    assert (await running.service.statement())[1:] == [("reserve", 2), ("forfeit", 2)]
    assert len(await safe_blocks(running)) == 1
    assert running.stub.requests == []
    assert "hate" not in json.dumps(made)
    await running.is_clean()


@ON_SQLITE
@pytest.mark.parametrize("problem", [ClassifierUnavailable(SECRET_TEXT, 45.0), RuntimeError(SECRET_TEXT)])
async def test_while_the_classifier_is_unavailable_a_generation_waits(
    running: Running, classifier: Plugin, problem: Exception
) -> None:
    """It is accepted, and given to no provider before the classifier has seen it."""
    classifier.otherwise = problem
    accepted = await running.service.accepted("a pier")
    async with running.service.working():
        job = await running.until_waiting(accepted)
        assert job.state is State.RETRYING
        if isinstance(problem, ClassifierUnavailable):
            assert (job.run_at - running.service.clock.now()).total_seconds() >= 45
        shown = await running.service.generation(accepted["generationId"])
        assert shown["error"] == {"code": "classifier_unavailable", "message": MESSAGES["classifier_unavailable"]}
        assert running.stub.requests == []
        classifier.otherwise = True
        made = await running.finish(accepted)
    assert (made["status"], made["retryCount"]) == ("completed", 1)
    assert SECRET_TEXT not in json.dumps(made) + json.dumps(await running.service.get(f"/jobs/{made['jobId']}"))


@ON_SQLITE
async def test_a_classifier_that_stays_unavailable_is_a_dead_letter(running: Running, classifier: Plugin) -> None:
    classifier.otherwise = ClassifierUnavailable(SECRET_TEXT)
    made = await running.run("a pier")
    assert (made["status"], made["error"]["code"]) == ("dead_letter", "classifier_unavailable")
    assert await running.service.credits() == (100, 0, 100)
    assert running.stub.requests == []


@ON_SQLITE
async def test_a_prompt_is_not_classified_at_each_poll(running: Running, classifier: Plugin) -> None:
    running.stub.progress = ["processing"] * 5 + ["succeeded"]
    assert (await running.run("a pier", provider="poll"))["status"] == "completed"
    assert classifier.seen == ["a pier", "a pier"]
