"""A distribution of the tests' AWS server, and an operator's view of its invalidations."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiobotocore.session import get_session

from tests.servers.aws import REGION, AwsServer

ORIGIN = {"Id": "images", "DomainName": "images.example.com", "S3OriginConfig": {"OriginAccessIdentity": ""}}
CONFIG = {
    "CallerReference": "images",
    "Comment": "",
    "Enabled": True,
    "Origins": {"Quantity": 1, "Items": [ORIGIN]},
    "DefaultCacheBehavior": {"TargetOriginId": "images", "ViewerProtocolPolicy": "allow-all"},
}


@dataclass
class Distribution:
    url: str  # of the API
    id: str
    client: Any

    @classmethod
    @asynccontextmanager
    async def created(cls, server: AwsServer) -> AsyncIterator["Distribution"]:
        async with get_session().create_client("cloudfront", REGION, endpoint_url=server.url) as client:
            made = await client.create_distribution(DistributionConfig=CONFIG)
            yield cls(server.url, made["Distribution"]["Id"], client)

    @property
    def settings(self) -> dict[str, str]:
        return {"cdn": self.id, "cdn_endpoint_url": self.url}

    async def invalidations(self) -> dict[str, list[str]]:
        """The paths of each, by its reference."""
        found = (await self.client.list_invalidations(DistributionId=self.id))["InvalidationList"].get("Items", [])
        batches = [await self._batch(each["Id"]) for each in found]
        return {batch["CallerReference"]: batch["Paths"]["Items"] for batch in batches}

    async def delete(self) -> None:
        """As operators do: disabled first."""
        config = {**CONFIG, "Enabled": False}
        shown = await self.client.get_distribution(Id=self.id)
        changed = await self.client.update_distribution(Id=self.id, IfMatch=shown["ETag"], DistributionConfig=config)
        await self.client.delete_distribution(Id=self.id, IfMatch=changed["ETag"])

    async def _batch(self, invalidation_id: str) -> dict[str, Any]:
        answer = await self.client.get_invalidation(DistributionId=self.id, Id=invalidation_id)
        return dict(answer["Invalidation"]["InvalidationBatch"])
