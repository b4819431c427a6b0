"""A worker without the database, beside the generation service: it leaves generations to workers that have one."""

from collections.abc import Mapping

import pytest

from holdfast.worker.handler import Handler
from holdfast.workloads.generation.jobs import abandon
from holdfast.workloads.generation.service import app
from holdfast.workloads.images.service import app as images
from tests.worker.test_http_source import remote_worker
from tests.workloads.generation.steps import ON_SQLITE, Service


def without_database(handlers: Mapping[str, Handler]) -> list[str]:
    return sorted(name for name, handler in handlers.items() if not handler.needs_database)


def test_only_these_jobs_need_no_database() -> None:
    assert without_database(app.handlers) == ["GENERATION_ABANDON"]
    assert without_database(images.handlers) == ["IMAGE_PURGE"]


@ON_SQLITE
async def test_a_remote_worker_leaves_a_generation_with_its_credits_to_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "settings", app.settings)
    alice = await service.user("alice")
    accepted = await alice.accepted()
    async with remote_worker(service.served, app):
        await (await abandon.enqueue("gone", [])).result(timeout=60)
        assert (await alice.generation(accepted["generationId"]))["status"] == "queued"
        assert await alice.credits() == (100, 1, 99)
    async with alice.working():
        assert (await alice.ended(accepted["generationId"]))["status"] == "completed"
    assert await alice.statement() == [("grant", 100), ("reserve", 1), ("commit", 1)]
