"""An operator's view of SQS: queues, what is in them, and messages that Holdfast did not write."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiobotocore.session import get_session

from tests.servers.aws import AwsServer

QUEUE = "hints"
DEAD = f"{QUEUE}-dead"


class SqsAdmin:
    def __init__(self, client: Any) -> None:
        self.client = client

    @classmethod
    @asynccontextmanager
    async def of(cls, server: AwsServer) -> AsyncIterator["SqsAdmin"]:
        async with get_session().create_client("sqs", endpoint_url=server.url) as client:
            yield cls(client)

    async def url(self, queue: str = QUEUE) -> str:
        return str((await self.client.get_queue_url(QueueName=queue))["QueueUrl"])

    async def attributes(self, queue: str = QUEUE) -> dict[str, str]:
        asked = await self.client.get_queue_attributes(QueueUrl=await self.url(queue), AttributeNames=["All"])
        return dict(asked["Attributes"])

    async def messages(self, queue: str = QUEUE) -> int:
        """Including messages in flight."""
        attributes = await self.attributes(queue)
        return sum(int(attributes[f"ApproximateNumberOfMessages{how}"]) for how in ("", "NotVisible", "Delayed"))

    async def wait_for_count(self, queue: str, count: int) -> None:
        """Wait for this count: messages in flight of a stopped worker reappear after the visibility timeout."""
        for _ in range(2400):
            if await self.messages(queue) == count:
                return
            await asyncio.sleep(0.05)
        assert await self.messages(queue) == count

    async def send(self, *bodies: str) -> None:
        for body in bodies:
            await self.client.send_message(QueueUrl=await self.url(), MessageBody=body)
