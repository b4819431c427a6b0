"""Generations that run against the provider stub, and what the database, the storage and the stub have of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from holdfast.errors import Conflict
from holdfast.lifecycle import State
from holdfast.model import Job
from holdfast.model.history import Attempt
from holdfast.store.queries import Query
from holdfast.worker.handler import Isolation
from holdfast.workloads.generation import jobs, objects
from holdfast.workloads.generation.ledger_check import check_ledger
from holdfast.workloads.generation.service import app
from tests.worker.in_process import until
from tests.workloads.generation.orders import KEY
from tests.workloads.generation.provider_stub import SECRET, ProviderStub, provider_stub
from tests.workloads.generation.steps import Service, Sets

COSTS = {"openai": 40_000, "poll": 3000}
CHARGES = Query("charges_of", "SELECT call_key, provider, micros FROM holdfast_generation_charge ORDER BY call_key")
RECORDED = Query("recorded_keys", "SELECT id, storage_key, thumbnail_key FROM holdfast_generation_asset")
DAY = 86_400.0


@dataclass
class Running:
    """The service with providers that are the stub."""

    service: Service
    stub: ProviderStub
    sets: Sets

    async def job(self, accepted: dict[str, Any]) -> Job:
        return await self.service.served.engine.reads.get(accepted["jobId"])

    async def attempts(self, accepted: dict[str, Any]) -> list[Attempt]:
        return await self.service.served.engine.reads.attempts(accepted["jobId"])

    async def wake(self, accepted: dict[str, Any]) -> None:
        """As when the time for its next execution has come."""
        try:
            await self.service.served.engine.wake(accepted["jobId"], tenant="default")
        except Conflict:
            assert (await self.job(accepted)).final

    async def finish(self, accepted: dict[str, Any], *, advance: float = 0) -> dict[str, Any]:
        """The generation in its final state. A worker must be running; waits for retries and polls are skipped, after
        the clock has gone on by `advance` seconds."""

        async def is_final() -> bool:
            job = await self.job(accepted)
            if waits(job):
                if advance:
                    self.service.clock.advance(advance)
                await self.wake(accepted)
            return job.final

        await until(is_final)
        return await self.service.generation(accepted["generationId"])

    async def run(self, prompt: str = "a lighthouse", *, advance: float = 0, **more: Any) -> dict[str, Any]:
        """A generation from the request to its end."""
        accepted = await self.service.accepted(prompt, **more)
        async with self.service.working():
            return await self.finish(accepted, advance=advance)

    async def until_waiting(self, accepted: dict[str, Any], executions: int = 1) -> Job:
        """The job when it waits for its next execution, after so many."""

        async def is_waiting() -> bool:
            job = await self.job(accepted)
            assert not job.final, job
            return waits(job) and job.epoch >= executions

        await until(is_waiting)
        return await self.job(accepted)

    async def until_idle(self) -> None:
        """All jobs have ended, also the chained ones."""

        await until(self.is_idle)

    async def is_idle(self) -> bool:
        counts = await self.service.served.engine.reads.counts()
        return all(state in FINAL_STATES for _, _, state, _ in counts)

    async def sweep(self) -> None:
        """A worker must be running. All that is in the storage counts as old."""
        handle = await jobs.sweep.enqueue()
        await until(lambda: self._is_final(handle.id))
        assert (await self.service.served.engine.reads.get(handle.id)).state is State.SUCCEEDED

    async def _is_final(self, job_id: str) -> bool:
        return (await self.service.served.engine.reads.get(job_id)).final

    # -- what there is ---------------------------------------------------------------------------------------------

    async def charges(self) -> list[tuple[str, str, int]]:
        rows = await self.service.served.engine.store.read(lambda tx: tx.all(CHARGES))
        return [(row["call_key"], row["provider"], row["micros"]) for row in rows]

    async def recorded(self) -> list[str]:
        """The objects that assets have."""
        rows = await self.service.served.engine.store.read(lambda tx: tx.all(RECORDED))
        return sorted(key for row in rows for key in (row["storage_key"], row["thumbnail_key"]) if key)

    async def _given_up(self) -> set[str]:
        """Thumbnails whose job is dead: it may have stored one, which is deleted with its asset."""
        rows = await self.service.served.engine.store.read(lambda tx: tx.all(RECORDED))
        return {objects.thumbnail_key(row["id"]) for row in rows if row["thumbnail_key"] is None}

    def paid(self) -> dict[str, int]:
        return dict(self.stub.paid)

    def keys(self) -> list[str]:
        """The idempotency keys of all orders, as they came."""
        return [each.headers["idempotency-key"] for each in self.stub.of("POST", "/v1/") if each.body]

    async def is_delivered(self, made: dict[str, Any], keys: list[str]) -> None:
        """Its images are those that the provider made under these keys."""
        assert made["status"] == "completed", made
        expected = [hashlib.sha256(self.stub.images[key]).hexdigest() for key in keys]
        assert [asset["sha256"] for asset in made["assets"]] == expected
        for asset, sha256 in zip(made["assets"], expected, strict=True):
            image = await self.service.http.get(asset["url"])
            assert hashlib.sha256(image.content).hexdigest() == sha256

    async def is_clean(self) -> None:
        """After a sweep, the storage has what assets have, and the ledger is valid."""
        async with self.service.working():
            await self.until_idle()
            await self.sweep()
        found, recorded = set(await stored()), set(await self.recorded())
        left = found - recorded - await self._given_up()
        assert not left, f"left over: {left}"
        assert found >= recorded, f"lost: {recorded - found}"
        await ledger_is_valid(self.service)


FINAL_STATES = (State.SUCCEEDED, State.DEAD, State.CANCELED, State.REJECTED)


def waits(job: Job) -> bool:
    return job.state is State.RETRYING or (job.state is State.QUEUED and not job.due)


async def stored() -> list[str]:
    return sorted([info.key async for info in objects.storage().list()])


async def ledger_is_valid(service: Service) -> None:
    totals = await check_ledger(service.served.engine.store.read)
    assert totals.faults == []


def provided_by(stub: ProviderStub, provider: str = "openai", **more: object) -> dict[str, object]:
    """Settings of the service."""
    urls = {"openai_url": stub.openai_url, "poll_url": stub.poll_url}
    keys = {"openai_key": KEY, "poll_key": KEY}
    costs = {f"{name}_cost_micros": micros for name, micros in COSTS.items()}
    return {"provider": provider, **urls, **keys, **costs, "webhook_secret": SECRET, **more}


@pytest.fixture
def stub() -> Iterator[ProviderStub]:
    with provider_stub() as stub:
        yield stub


@pytest.fixture
def running(
    service: Service, stub: ProviderStub, generation_settings: Sets, monkeypatch: pytest.MonkeyPatch
) -> Running:
    """Requests that name no provider are for `openai`. Leftovers of any age are swept, and thumbnails are made in this
    process."""
    generation_settings(**provided_by(stub))
    sweeping_all(monkeypatch)
    in_process_thumbnails(monkeypatch)
    return Running(service, stub, generation_settings)


def sweeping_all(patch: pytest.MonkeyPatch) -> None:
    """Leftovers of any age."""
    patch.setattr(jobs, "LEFTOVER_SECONDS", -DAY)


def in_process_thumbnails(patch: pytest.MonkeyPatch) -> None:
    thumbnails = replace(app.handlers["GENERATION_THUMBNAIL"], isolation=Isolation.LOOP)
    patch.setitem(app.handlers, "GENERATION_THUMBNAIL", thumbnails)
