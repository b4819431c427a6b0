"""Many images while everything fails at once: SQS loses and repeats messages, the storage and a worker are killed."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.dispatch import sqs
from holdfast.dispatch.sqs import SqsBroker
from holdfast.model.hint import Hint
from holdfast.settings import Settings
from holdfast.workloads.images.jobs import QUEUE
from holdfast.workloads.images.service import app
from tests.cli.background import Background
from tests.sampling import Sample
from tests.server.steps import serving
from tests.servers.s3 import S3Server
from tests.worker.in_process import until
from tests.workloads.images import leftovers
from tests.workloads.images.steps import APP, FINAL, Service, Sets, animation, picture

pytestmark = pytest.mark.slow

AT_ONCE = 4
VARIANTS = [{"width": 16, "format": "webp"}, {"width": 24, "format": "avif"}, {"width": 32, "format": "jpeg"}]
RETRIES: dict[str, Any] = {"backoff_base": 0.2, "backoff_jitter": 0}
LOST, REPEATED, OF = 1, 2, 10  # messages
KINDS, BROKEN = 5, 4
SECONDS = 200.0


class Loss:
    """A tenth of the messages is never sent, a fifth is sent twice."""

    def __init__(self, seed: int) -> None:
        self._chance, self._next = random.Random(seed), list[int]()
        self.sent = Counter[int]()

    def of(self, hints: list[Hint]) -> list[Hint]:
        return [hint for hint in hints for _ in range(self._copies())]

    def _copies(self) -> int:
        if not self._next:
            self._next = [0] * LOST + [2] * REPEATED + [1] * (OF - LOST - REPEATED)
            self._chance.shuffle(self._next)
        self.sent[copies := self._next.pop()] += 1
        return copies


def upload(number: int) -> bytes:
    """No two are alike; the last of each five ends too early."""
    match number % KINDS:
        case 0:
            return picture(60 + number, 40, "JPEG")
        case 1:
            return picture(60 + number, 40, "PNG", mode="RGBA")
        case 2:
            return animation(3 + number % 4, (40 + number, 30))
        case 3:
            return picture(60 + number, 40, "WEBP")
    return picture(300 + number, 300, "JPEG")[:2000]


class Client:
    """Uploads each image until it is accepted, always with the same key."""

    def __init__(self, service: Service) -> None:
        self._service, self._turns = service, asyncio.Semaphore(AT_ONCE)
        self.accepted, self.refused = dict[int, dict[str, Any]](), Counter[str]()

    async def upload(self, numbers: range) -> None:
        await asyncio.gather(*map(self._upload, numbers))

    async def _upload(self, number: int) -> None:
        request = {"content": upload(number), "params": {"variants": json.dumps(VARIANTS)}}
        async with self._turns:
            while number not in self.accepted:
                key = {"Idempotency-Key": f"upload-{number}"}
                answer = await self._service.served.http.post("/images", headers=key, **request)
                if answer.status_code == 202:
                    self.accepted[number] = answer.json()
                else:
                    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable"), answer.text
                    self.refused[number] += 1
                    await asyncio.sleep(0.1)

    async def have(self, least: int, *statuses: str) -> bool:
        images = [await self._service.image(each["imageId"]) for each in [*self.accepted.values()]]
        return len([image for image in images if image["status"] in statuses]) >= least

    async def ended_once_and_equal(self) -> None:
        for number, each in self.accepted.items():
            image = await self._service.image(each["imageId"])
            code = image.get("error", {}).get("code")
            if number % KINDS == BROKEN:
                assert (image["status"], code) == ("failed", "corrupt_image")
            else:
                assert (image["status"], code) == ("completed", None)
                assert leftovers.digests(image) == leftovers.expected_digests(upload(number), VARIANTS)
            assert await leftovers.ends(each["jobId"]) == 1


async def test_every_image_ends_once_and_equal(
    store_url: str,
    sample: Sample,
    s3_server: S3Server,
    s3_settings: dict[str, str],
    sqs_settings: dict[str, str],
    images_settings: Sets,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    count, outages = (200, 6) if sample.soak else (20, 1)
    images_settings(**s3_settings)
    app.settings = Settings(database_url=store_url)
    loss, send = Loss(sample.number), SqsBroker.send
    monkeypatch.setattr(sqs, "CALL_SECONDS", 60.0)  # the AWS library loads slowly on a busy machine
    monkeypatch.setattr(SqsBroker, "send", lambda broker, hints: send(broker, loss.of(hints)))
    given: dict[str, Any] = {**sqs_settings, **RETRIES, "database_url": store_url}
    given |= {f"images_{name}": value for name, value in s3_settings.items()}
    variables = {f"HOLDFAST_{name.upper()}": str(value) for name, value in given.items()}

    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.close)
        served = await stack.enter_async_context(serving(store_url, app=app, **sqs_settings, **RETRIES))

        def worker() -> Background:
            command = ("worker", "--app", APP, "--concurrency", "2")
            return stack.enter_context(Background(*command, folder=tmp_path, **variables))

        client, workers = Client(Service(served, tmp_path)), [worker(), worker()]
        await served.engine.queues.pause(QUEUE)
        await client.upload(range(count // 2))
        async with down(s3_server):
            await served.engine.queues.resume(QUEUE)
            uploads = asyncio.create_task(client.upload(range(count // 2, count)))
            await until(lambda: client.refused, seconds=SECONDS)
            await until(lambda: client.have(1, "failed_retryable"), seconds=SECONDS)
        for number in range(1, outages + 1):
            some = number * count // (outages + 2)
            await until(lambda some=some: client.have(some, *FINAL), seconds=SECONDS)
            async with down(s3_server):
                workers.pop(0).process.kill()
                workers.append(worker())
        await uploads
        await until(lambda: client.have(count, *FINAL), seconds=SECONDS)
        await client.ended_once_and_equal()
        assert await leftovers.images() == count
        for each in workers:
            await asyncio.to_thread(each.end)
        async with down(s3_server):  # no request is on its way any more, as when a day has passed
            workers = [worker()]
        await leftovers.swept_when_due()
        assert await leftovers.stored() == await leftovers.recorded()
    assert loss.sent[0] >= loss.sent.total() * LOST // OF > 0
    assert loss.sent[2] >= loss.sent.total() * REPEATED // OF > 0


@asynccontextmanager
async def down(server: S3Server) -> AsyncIterator[None]:
    await asyncio.to_thread(server.stop, kill=True)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)
