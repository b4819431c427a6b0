"""The classifier of prompts, where one is configured: asked before a request is accepted, and again before it runs."""

from __future__ import annotations

import logging

from holdfast.errors import Invalid
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.guard.classifier import ClassifierUnavailable, Verdict, load_classifier

log = logging.getLogger(__name__)


async def refused_by_classifier(prompt: str) -> str | None:
    """The category, before a request is accepted. While the classifier is unavailable its job waits for it."""
    try:
        verdict = await _ask(prompt)
    except ClassifierUnavailable as error:
        log.warning("the classifier of prompts is unavailable; the job will ask it again: %s", error)
        return None
    return None if verdict.allowed else verdict.category


async def required_verdict(prompt: str) -> Verdict:
    """Before a prompt is given to a provider. Raises `ProviderError` while the classifier is unavailable."""
    try:
        return await _ask(prompt)
    except ClassifierUnavailable as error:
        code = "classifier_unavailable"
        raise ProviderError(code, str(error), "transient", retry_after=error.retry_after) from error


async def _ask(prompt: str) -> Verdict:
    try:
        classifier = load_classifier(ext.settings)
    except Invalid as error:
        raise ClassifierUnavailable(error.message) from error
    if classifier is None:
        return Verdict(True)
    try:
        return await classifier.classify(prompt)
    except ClassifierUnavailable:
        raise
    except Exception as error:  # of a plug-in: without a verdict no provider gets the prompt
        raise ClassifierUnavailable(f"{type(error).__name__}: {error}") from error
    finally:
        await classifier.close()
