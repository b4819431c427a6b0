"""A whole deployment of the image service: a server, a worker process, PostgreSQL, S3, SQS and CloudFront.

`story_of` gives it an image that needs three attempts, a broken one, messages that were sent before, and two deletions,
and returns what the metrics, the logs and the history say of that.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.dispatch import sqs
from holdfast.dispatch.sqs import SqsBroker
from holdfast.model import Job
from holdfast.model.hint import Hint
from holdfast.model.history import Attempt, Event
from holdfast.settings import Settings
from holdfast.workloads.images import ext
from holdfast.workloads.images.service import app
from tests.cli.background import Background
from tests.dispatch.sqs_admin import SqsAdmin
from tests.observe.captured import json_lines
from tests.server.steps import Served, serving
from tests.servers.aws import REGION, AwsServer
from tests.servers.proxy import Proxy
from tests.servers.s3 import BUCKET, S3Server
from tests.worker.in_process import until
from tests.worker.test_metrics import Page
from tests.workloads.images.cloudfront import Distribution
from tests.workloads.images.steps import Service, picture

ROOT = str(Path(__file__).parents[3])
WORKER = ("worker", "--app", "tests.workloads.images.dying_app:app", "--metrics-port", "0", "--concurrency", "1")
PNG, JPEG = picture(300, 200), picture(300, 300, "JPEG")[:2000]  # the second one ends too early
SMALL = {"variants": json.dumps([{"width": 16, "format": "webp"}])}
RETRIES = {"backoff_base": 0.2, "backoff_jitter": 0}
HINTS = 25


@dataclass
class Told:
    """A job, its attempts and events, and what the worker logged of it."""

    job: Job
    attempts: list[Attempt]
    events: list[Event]
    log: list[dict[str, Any]]

    def lines(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line["logger"] == logger]


@dataclass
class Story:
    waiting: Page  # of the worker, while the first image is being processed and the second one waits
    worker: Page
    server: Page
    good: Told  # first the storage is unreachable, then the process is killed, then it is completed
    broken: Told
    deletion: Told
    failed_deletion: Told  # its distribution does not exist any more
    hints_left: int  # of those about jobs that had ended

    @property
    def all(self) -> list[Told]:
        return [self.good, self.broken, self.deletion, self.failed_deletion]


async def story_of(url: str, s3: S3Server, aws: AwsServer, folder: Path, patch: pytest.MonkeyPatch) -> Story:
    prefix, queue = f"s3://{BUCKET}/{secrets.token_hex(8)}", f"images-{secrets.token_hex(4)}"
    patch.setattr(sqs, "CALL_SECONDS", 60.0)  # the AWS library loads slowly on a busy machine
    patch.setattr(sqs, "INVISIBLE_SECONDS", 2)
    hints = {"dispatch": "sqs", "sqs_queue": queue, "sqs_endpoint_url": aws.url}
    patch.setattr(ext, "_read_settings", None)
    for name, value in aws.credentials.items():
        patch.setenv(name, value)
    broker = SqsBroker(queue, aws.url)
    await broker.open()  # makes the queue
    await broker.close()
    async with Distribution.created(aws) as cdn, Proxy.to(s3.url) as wire:
        images = {**S3Server.credentials, **cdn.settings}
        for name, value in {**images, "storage_url": _at(prefix, s3.url)}.items():
            patch.setenv(f"HOLDFAST_IMAGES_{name.upper()}", value)
        app.settings = Settings(database_url=url)
        async with serving(url, app=app, **hints, **RETRIES) as served:
            given = {f"images_{name}": value for name, value in images.items()}
            given |= {**hints, "images_storage_url": _at(prefix, wire.url), "database_url": url}
            given |= {name: str(value) for name, value in RETRIES.items()}
            variables = {f"HOLDFAST_{name.upper()}": value for name, value in given.items()}
            variables |= {"IMAGES_STEP": "before put 1", "IMAGES_MARK": str(folder / "mark"), "PYTHONPATH": ROOT}
            with Background(*WORKER, folder=folder, **variables) as worker:
                return await _Teller(Service(served, folder), worker, wire, cdn).tell(aws, queue)


def _at(prefix: str, endpoint: str) -> str:
    return f"{prefix}?endpoint={endpoint}&region={REGION}"


@dataclass
class _Teller:
    service: Service
    process: Background
    wire: Proxy  # between the worker and S3
    cdn: Distribution

    @property
    def served(self) -> Served:
        return self.service.served

    async def tell(self, aws: AwsServer, queue: str) -> Story:
        self.wire.swallow(answers=True)
        good, broken = await self._upload()
        self.process.until_it_says("ready: ")
        await self._reaches(good, "processing")
        waiting = await self._page()
        await self.wire.go_away()
        await self._reaches(good, "failed_retryable")
        await self.wire.come_back()
        jobs = [(await self.service.ended(image))["jobId"] for image in (good, broken)]
        hints_left = await self._repeat_hints(jobs, aws, queue)
        jobs.append(await self._delete(good))
        await self.cdn.delete()
        jobs.append(await self._delete(broken))
        pages = await self._page(), Page((await self.served.http.get("/metrics")).text)
        assert self.process.end() == 0
        log = json_lines(self.process.said)
        return Story(waiting, *pages, *[await self._told(job, log) for job in jobs], hints_left)

    async def _upload(self) -> list[str]:
        raw = await self.served.http.post("/images", content=PNG, headers={"content-type": "image/png"}, params=SMALL)
        file = {"file": ("photo.jpg", JPEG, "image/jpeg")}
        form = await self.served.http.post("/images", files=file, data=SMALL)
        return [answer.json()["imageId"] for answer in (raw, form)]

    async def _reaches(self, image: str, status: str) -> None:
        async def has() -> bool:
            return bool((await self.service.image(image))["status"] == status)

        await until(has)

    async def _repeat_hints(self, jobs: list[str], aws: AwsServer, queue: str) -> int:
        broker = SqsBroker(queue, aws.url)
        await broker.send([Hint("images", "IMAGE_PROCESS", job) for job in jobs] * HINTS)
        await broker.close()
        async with SqsAdmin.of(aws) as admin:
            await admin.wait_for_count(queue, 0)
            return await admin.messages(f"{queue}-dead")

    async def _delete(self, image: str) -> str:
        job = str((await self.served.http.delete(f"/images/{image}")).json()["jobId"])
        assert (await self.service.job(job))["status"] in ("COMPLETED", "FAILED")
        return job

    async def _page(self) -> Page:
        found = re.search(r"metrics: http://0\.0\.0\.0:(\d+)/metrics", self.process.said)
        assert found, self.process.said
        async with httpx2.AsyncClient(timeout=30) as http:
            return Page((await http.get(f"http://127.0.0.1:{found[1]}/metrics")).text)

    async def _told(self, job: str, log: list[dict[str, Any]]) -> Told:
        reads = self.served.engine.reads
        own = [line for line in log if line.get("job_id") == job]
        return Told(await reads.get(job), await reads.attempts(job), await reads.history(job), own)
