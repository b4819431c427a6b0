"""`Client`: creates, reads, watches, lists and cancels jobs over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from holdfast import wire
from holdfast.client.codec import FINAL, intent_of, json_payload, path_of
from holdfast.client.job import RemoteJob
from holdfast.client.worker_api import WorkerApi
from holdfast.model.limits import units_of

PAGE = 100


class Client(WorkerApi):
    """Every job has an idempotency key, given or generated, so that a repeated request creates one job.

    async with Client("https://jobs.example.com", key) as client:
        job = await client.create("SEND_EMAIL", {"to": "a@example.com"})
        print(await job.result(timeout=30))
    """

    async def create(
        self,
        job_type: str,
        payload: dict[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
        delay_seconds: float | None = None,
        max_attempts: int | None = None,
        tags: Sequence[str] = (),
        subject: str | None = None,
        lifecycle: str | None = None,
        limit_key: str | None = None,
        fairness_key: str | None = None,
        limits: Sequence[str] | Mapping[str, int] | None = None,
    ) -> RemoteJob:
        intent = wire.JobIntent(
            job_type=job_type,
            payload=json_payload(payload or {}),
            idempotency_key=idempotency_key or self._ids.token(),
            queue=queue,
            priority=priority,
            run_at=run_at,
            delay_seconds=delay_seconds,
            max_attempts=max_attempts,
            tags=[tags] if isinstance(tags, str) else [*tags],
            subject=subject,
            lifecycle=lifecycle,
            limit_key=limit_key,
            fairness_key=fairness_key,
            limits=units_of(limits),
        )
        headers = self._trace_headers()
        return self.job((await self._post("/jobs", intent, wire.JobAccepted, headers=headers)).job_id)

    async def create_many(self, jobs: Iterable[Mapping[str, Any]]) -> Sequence[RemoteJob]:
        """All or none. Each is a mapping with the arguments of `create`: `{"job_type": ..., "payload": ..., ...}`."""
        body = wire.JobIntents([intent_of(job, self._ids) for job in jobs])
        headers = self._trace_headers()
        accepted = await self._post("/jobs/batch", body, wire.JobsAccepted, headers=headers)
        return [self.job(each.job_id) for each in accepted.jobs]

    def job(self, job_id: str) -> RemoteJob:
        """A handle for the job with this id."""
        return RemoteJob(self, job_id)

    async def get(self, job_id: str, *, wait_seconds: int = 0) -> wire.JobView:
        """The job now; with `wait_seconds`, when it has ended or after that time."""
        headers = {"prefer": f"wait={wait_seconds}"} if wait_seconds else {}
        return await self._get(path_of(job_id), wire.JobView, wait=wait_seconds, headers=headers)

    async def cancel(self, job_id: str) -> str:
        """The job's status: CANCELED, or RUNNING while its worker is asked to stop."""
        return (await self._post(f"{path_of(job_id)}/cancel", None, wire.JobAccepted)).status

    async def events(self, job_id: str | None = None, **filters: str) -> AsyncGenerator[wire.JobEvent]:
        """All events of one job; or new events of all jobs, or of a `job_type` or `queue`."""
        path = "/events" if job_id is None else f"{path_of(job_id)}/events"
        async with aclosing(self._watch(path, **filters)) as stream:
            async for each in stream:
                event = msgspec.json.decode(each.data, type=wire.JobEvent)
                yield event
                if job_id is not None and event.status in FINAL:
                    return

    async def list(self, *, limit: int | None = None, **filters: str) -> AsyncGenerator[wire.JobView]:
        """Newest first. Filters: `status`, `state`, `job_type`, `queue`, `tag`, `subject` and `parent_id`; `limit` is
        the maximum number."""
        cursor: str | None = None
        while limit is None or limit > 0:
            size = PAGE if limit is None else min(PAGE, limit)
            asked = {**filters, "limit": size} | ({} if cursor is None else {"cursor": cursor})
            page = await self._get("/jobs", wire.JobPage, params=asked)
            for view in page.jobs:
                yield view
            limit = None if limit is None else limit - len(page.jobs)
            if (cursor := page.next_cursor) is None:
                return
