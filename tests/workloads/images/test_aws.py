"""The image service in a process of its own, with objects in S3, hints through SQS, and a CloudFront distribution."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.storage import open_storage
from holdfast.workloads.images.objects import MARK
from tests.cli.background import Background
from tests.dispatch.sqs_admin import SqsAdmin
from tests.servers.aws import AwsServer
from tests.worker.in_process import until
from tests.workloads.images.cloudfront import Distribution
from tests.workloads.images.steps import APP, FINAL, picture

pytestmark = pytest.mark.slow


@pytest.fixture
async def http(
    aws_environment: dict[str, str], fresh_sqlite_url: str, tmp_path: Path
) -> AsyncIterator[httpx2.AsyncClient]:
    variables = aws_environment | {"HOLDFAST_DATABASE_URL": fresh_sqlite_url}
    with Background("dev", "--app", APP, "--port", "0", folder=tmp_path, **variables) as dev:
        dev.until_it_says("HTTP API: ")
        url = re.findall(r"HTTP API: (http://[\d.:]+)", dev.said)[0]
        async with httpx2.AsyncClient(base_url=url) as http:
            yield http


async def completed(http: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    """A job or an image, when it is final."""

    async def is_final() -> bool:
        return (await http.get(path)).json()["status"].lower() in FINAL

    await until(is_final)
    found = (await http.get(path)).json()
    assert found["status"].lower() == "completed", found
    return dict(found)


async def stored(storage_url: str, **keys: str) -> list[str]:
    async with open_storage(storage_url, **keys) as storage:
        return [info.key async for info in storage.list() if not info.key.startswith(MARK)]


async def test_an_image_is_stored_in_s3_and_deleted_there_and_in_the_cdn(
    http: httpx2.AsyncClient, s3_settings: dict[str, str], cloudfront: Distribution
) -> None:
    uploaded = (await http.post("/images", content=picture())).json()
    path = f"/images/{uploaded['imageId']}"
    image = await completed(http, path)
    assert len(await stored(**s3_settings)) == 1 + len(image["variants"])
    async with httpx2.AsyncClient() as browser:
        assert (await browser.get(image["variants"][0]["url"])).content.startswith(b"\xff\xd8")
    deletion = (await http.delete(path)).json()["jobId"]
    await completed(http, f"/jobs/{deletion}")
    assert await stored(**s3_settings) == []
    assert await cloudfront.invalidations() == {deletion: [f"{path}/*"]}


async def test_variants_that_are_replaced_are_purged(
    http: httpx2.AsyncClient, cloudfront: Distribution, aws_server: AwsServer, sqs_settings: dict[str, str]
) -> None:
    uploaded = (await http.post("/images", content=picture())).json()
    path = f"/images/{uploaded['imageId']}"
    await completed(http, path)
    assert await cloudfront.invalidations() == {}
    narrower = [{"format": "jpeg", "width": 10}]
    again = (await http.post(f"{path}/reprocess", json={"variants": narrower})).json()
    await completed(http, f"/jobs/{again['jobId']}")
    await until(cloudfront.invalidations)
    assert list((await cloudfront.invalidations()).values()) == [[f"{path}/*"]]
    async with SqsAdmin.of(aws_server) as sqs:
        await sqs.wait_for_count(sqs_settings["sqs_queue"], 0)  # each hint was received and deleted
