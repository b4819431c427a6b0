"""Many generations while providers, the storage and workers fail at once: each ends once, and is paid once."""

import asyncio
import hashlib
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.workloads.generation.service import app
from tests.cli.background import Background
from tests.sampling import Sample
from tests.server.steps import serving
from tests.servers.aws import REGION
from tests.servers.s3 import BUCKET, S3Server
from tests.worker.in_process import until
from tests.workloads.generation.provider_stub import (
    Answering,
    Exchange,
    ProviderStub,
    current,
    hangs_up,
    html,
    image_base64,
    image_bytes,
    image_url,
    paid_and_lost,
    prediction,
    short,
    status,
    throttled,
    unsafe,
)
from tests.workloads.generation.running import Running, in_process_thumbnails, provided_by, stub, sweeping_all
from tests.workloads.generation.steps import FINAL, Service, Sets

__all__ = ["stub"]
pytestmark = pytest.mark.slow

APP = "holdfast.workloads.generation:app"
FAULTS, UNSAFE = 0.2, 0.02  # of the requests to the provider
REPEATED, CANCELED = 0.2, 0.1  # of the requests to the service
RETRIES: dict[str, Any] = {"backoff_base": 0.1, "backoff_cap": 1, "backoff_jitter": 0, "max_attempts": 20}
CREDITS = 10_000
AT_ONCE = 4
SECONDS = 300.0


class Chaos:
    """Answers of the provider: a fifth of them are faults."""

    def __init__(self, stub: ProviderStub, seed: int) -> None:
        self._chance = random.Random(seed)
        self.told = Counter[str]()
        stub.progress = ["processing", "succeeded"]
        stub.otherwise_create, stub.otherwise_poll, stub.otherwise_download = self.create, self.poll, self.download

    def _one_of(self, usual: Answering, *faults: Answering) -> Answering:
        failing = self._chance.random() < FAULTS
        self.told["faults" if failing else "answers"] += 1
        return self._chance.choice(faults) if failing else usual

    def create(self, exchange: Exchange) -> None:
        if exchange.request.path == "/v1/predictions":
            usual: Answering = prediction
        else:
            usual = self._chance.choice([image_base64, image_url])
        if self._chance.random() < UNSAFE:
            usual = unsafe
        self._one_of(usual, status(503), hangs_up, paid_and_lost, throttled("1"), html, short())(exchange)

    def poll(self, exchange: Exchange) -> None:
        self._one_of(soon, status(500), hangs_up, failed)(exchange)

    def download(self, exchange: Exchange) -> None:
        self._one_of(image_bytes, status(502), hangs_up, html)(exchange)


def soon(exchange: Exchange) -> None:
    made = exchange.prediction
    made.move_on()
    exchange.reply(200, exchange.stub.shown(made), {"Retry-After": "1"})


def failed(exchange: Exchange) -> None:
    """If it has not ended yet."""
    made = exchange.prediction
    if made.status == "processing":
        exchange.stub.end(made.id, "failed", error="no GPU", webhooks=0)
    current(exchange)


class Client:
    """Requests generations, some of them twice, and cancels some."""

    def __init__(self, service: Service, seed: int) -> None:
        self._service, self._chance, self._turns = service, random.Random(seed), asyncio.Semaphore(AT_ONCE)
        self.accepted, self.counts = dict[int, str](), dict[int, int]()

    async def request(self, numbers: range) -> None:
        await asyncio.gather(*map(self._request, numbers))

    async def _request(self, number: int) -> None:
        count, provider = self._chance.randint(1, 3), self._chance.choice(["openai", "poll"])
        wanted = {"count": count, "provider": provider, "key": f"request-{number}"}
        repeats, cancels = self._chance.random() < REPEATED, self._chance.random() < CANCELED
        async with self._turns:
            asked = [self._service.accepted(f"number {number}", **wanted) for _ in range(1 + repeats)]
            ids = {each["generationId"] for each in await asyncio.gather(*asked)}
            assert len(ids) == 1
            self.accepted[number], self.counts[number] = ids.pop(), count
            if cancels:
                answer = await self._service.ask("POST", f"/generations/{self.accepted[number]}/cancel")
                assert answer.status_code in (202, 409)

    async def final(self) -> list[dict[str, Any]]:
        found = [await self._service.generation(each) for each in [*self.accepted.values()]]
        return [generation for generation in found if generation["status"] in FINAL]

    async def have_ended(self, least: int) -> bool:
        return len(await self.final()) >= least


async def test_every_generation_ends_once_and_is_paid_once(
    store_url: str,
    sample: Sample,
    stub: ProviderStub,
    s3_server: S3Server,
    generation_settings: Sets,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    count, kills = (300, 8) if sample.soak else (12, 2)
    storage = f"s3://{BUCKET}/{secrets.token_hex(8)}?endpoint={s3_server.url}&region={REGION}"
    settings = provided_by(stub, storage_url=storage, starting_credits=CREDITS, quota_per_day=0, **S3Server.credentials)
    generation_settings(**settings)
    given = {f"generation_{name}": value for name, value in settings.items()} | RETRIES | {"database_url": store_url}
    variables: dict[str, Any] = {f"HOLDFAST_{name.upper()}": str(value) for name, value in given.items()}
    chaos = Chaos(stub, sample.number)

    async with AsyncExitStack() as stack:
        stack.enter_context(app.override(store_url, Clock(), Ids()))
        stack.push_async_callback(app.close)
        served = await stack.enter_async_context(serving(store_url, app=app, **RETRIES))
        service = Service(served, tmp_path, Clock(), store_url)  # type: ignore[arg-type]
        running = Running(service, stub, generation_settings)

        def worker() -> Background:
            command = ("worker", "--app", APP, "--concurrency", "3")
            return stack.enter_context(Background(*command, folder=tmp_path, **variables))

        client, workers = Client(service, sample.number), [worker(), worker()]
        requests = asyncio.create_task(client.request(range(count)))
        for number in range(1, kills + 1):
            least = number * count // (kills + 2)
            await until(lambda least=least: client.have_ended(least), seconds=SECONDS)
            if number == 1:
                async with down(s3_server):
                    workers.pop(0).process.kill()
                    workers.append(worker())
            else:
                workers.pop(0).process.kill()
                workers.append(worker())
        await requests
        await until(lambda: client.have_ended(count), seconds=SECONDS)
        await until(running.is_idle, seconds=SECONDS)  # the chained jobs, too
        for each in workers:
            await asyncio.to_thread(each.end)
        async with down(s3_server):  # no request of a killed worker is on its way any more
            pass
        in_process_thumbnails(monkeypatch)
        sweeping_all(monkeypatch)
        await each_is_settled(running, client)
        await running.is_clean()
    assert chaos.told["faults"] >= chaos.told.total() * FAULTS / 3


async def each_is_settled(running: Running, client: Client) -> None:
    """Credits and charges are those of what was delivered, and each image is one that the provider made for it."""
    by_id = {generation["generationId"]: generation for generation in await client.final()}
    assert len(by_id) == len(client.accepted)
    charges = [key for key, *_ in await running.charges()]
    assert len(charges) == len(set(charges))
    twice = {key: times for key, times in running.stub.paid.items() if times > 1}
    assert not twice, twice
    assert set(charges) <= set(running.stub.paid)
    spent = 0
    for number, id_ in client.accepted.items():
        generation = by_id[id_]
        made, count = len(generation["assets"]), client.counts[number]
        expected = {"completed": made, "rejected": count, "dead_letter": 0}[generation["status"]]
        assert (generation["creditsCharged"], generation["creditsReserved"]) == (expected, 0)
        assert bool(made) == (generation["status"] == "completed")
        spent += expected
        keys = {
            hashlib.sha256(data).hexdigest(): key for key, data in running.stub.images.items() if key.startswith(id_)
        }
        delivered = [keys[asset["sha256"]] for asset in generation["assets"]]
        assert len(set(delivered)) == made
        assert set(delivered) <= set(charges)
        history = await running.service.served.engine.reads.history(generation["jobId"])
        assert len([event for event in history if event.to_state in ENDS]) == 1
    assert await running.service.credits() == (CREDITS - spent, 0, CREDITS - spent)
    assert any(generation["status"] == "completed" for generation in by_id.values())


ENDS = ("succeeded", "dead", "canceled", "rejected")


@asynccontextmanager
async def down(server: S3Server) -> AsyncIterator[None]:
    await asyncio.to_thread(server.stop, kill=True)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)
