"""A worker that uses the HTTP API, one request at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.server.steps import Served, bearer


@dataclass
class Hand:
    http: httpx2.AsyncClient
    id: str
    key: str

    async def say(self, verb: str, **body: Any) -> httpx2.Response:
        return await self.http.post(f"/api/worker/{verb}", json=body, headers=bearer(self.key))

    async def told(self, verb: str, **body: Any) -> dict[str, Any]:
        """Said and answered with 200."""
        answer = await self.say(verb, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def refused(self, verb: str, **body: Any) -> dict[str, Any]:
        """Said and answered with 409 lease_lost."""
        answer = await self.say(verb, **body)
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost"), answer.text
        return dict(answer.json())

    async def claim(self, **body: Any) -> list[dict[str, Any]]:
        answer = await self.say("claim", **body)
        if answer.status_code == 204:
            assert answer.content == b""
            return []
        assert answer.status_code == 200, answer.text
        return list(answer.json()["jobs"])

    async def claim_one(self, **body: Any) -> dict[str, Any]:
        [job] = await self.claim(**body)
        return job

    def elsewhere(self, served: Served) -> Hand:
        """The same worker, before another server."""
        return Hand(served.http, self.id, self.key)


async def hand(served: Served, **registration: Any) -> Hand:
    registered = await served.register(**registration)
    return Hand(served.http, registered["workerId"], registered["apiKey"])


def held(job: dict[str, Any]) -> dict[str, str]:
    """What every word about a job begins with."""
    return {"jobId": job["jobId"], "leaseToken": job["leaseToken"]}


async def waiting_there(served: Served, count: int) -> None:
    """Until so many claims wait in that server."""
    async with asyncio.timeout(60):
        while len(served.server.long_poll._waiting) != count:  # noqa: ASYNC110  nobody tells a test
            await asyncio.sleep(0.01)
