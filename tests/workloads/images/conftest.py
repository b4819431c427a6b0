"""Real servers for the image service: S3, CloudFront and SQS. Each fixture with settings is for one of them."""

import secrets
from collections.abc import AsyncIterator

import pytest

from tests.servers.aws import REGION, AwsServer
from tests.servers.s3 import BUCKET, S3Server
from tests.workloads.images.cloudfront import Distribution
from tests.workloads.images.steps import images_settings, service

__all__ = ["images_settings", "service"]


@pytest.fixture
def s3_storage_url(s3_server: S3Server) -> str:
    """An empty folder in a bucket."""
    return f"s3://{BUCKET}/{secrets.token_hex(8)}?endpoint={s3_server.url}&region={REGION}"


@pytest.fixture
def s3_settings(s3_storage_url: str) -> dict[str, str]:
    """Settings of the image service. The keys are not those in the environment, which are for CloudFront and SQS."""
    return {"storage_url": s3_storage_url, **S3Server.credentials}


@pytest.fixture
async def cloudfront(aws_server: AwsServer) -> AsyncIterator[Distribution]:
    """A distribution without invalidations. Its `settings` are of the image service."""
    async with Distribution.created(aws_server) as distribution:
        yield distribution


@pytest.fixture
def sqs_settings(aws_server: AwsServer) -> dict[str, str]:
    """Settings of Holdfast, with a queue that does not exist yet."""
    return {"dispatch": "sqs", "sqs_queue": f"images-{secrets.token_hex(4)}", "sqs_endpoint_url": aws_server.url}


@pytest.fixture
def aws_environment(
    s3_settings: dict[str, str], cloudfront: Distribution, sqs_settings: dict[str, str]
) -> dict[str, str]:
    """All of them, as variables for a process: `Background("dev", ..., **aws_environment)`."""
    images = {f"images_{name}": value for name, value in (s3_settings | cloudfront.settings).items()}
    return {f"HOLDFAST_{name.upper()}": value for name, value in (images | sqs_settings).items()}
