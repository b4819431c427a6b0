"""Real servers for the image service."""

from collections.abc import AsyncIterator

import pytest

from tests.servers.aws import AwsServer
from tests.workloads.images.cloudfront import Distribution


@pytest.fixture
async def cloudfront(aws_server: AwsServer) -> AsyncIterator[Distribution]:
    """A distribution without invalidations."""
    async with Distribution.created(aws_server) as distribution:
        yield distribution
