"""`Client`: creates, reads, watches, lists and cancels jobs over HTTP."""

# Made by `python -m tests.client.generate` from client.py, and to be changed there.

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

import msgspec

from holdfast import wire
from holdfast.client.codec import FINAL, intent_of, json_payload, path_of
from holdfast.client.sync.job import SyncRemoteJob
from holdfast.client.sync.worker_api import SyncWorkerApi
from holdfast.model.limits import units_of

PAGE = 100


class SyncClient(SyncWorkerApi):
    """Every job has an idempotency key, given or generated, so that a repeated request creates one job.

    with SyncClient("https://jobs.example.com", key) as client:
        job = client.create("SEND_EMAIL", {"to": "a@example.com"})
        print(job.result(timeout=30))
    """

    def create(
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
    ) -> SyncRemoteJob:
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
        return self.job((self._post("/jobs", intent, wire.JobAccepted, headers=headers)).job_id)

    def create_many(self, jobs: Iterable[Mapping[str, Any]]) -> Sequence[SyncRemoteJob]:
        """All or none. Each is a mapping with the arguments of `create`: `{"job_type": ..., "payload": ..., ...}`."""
        body = wire.JobIntents([intent_of(job, self._ids) for job in jobs])
        headers = self._trace_headers()
        accepted = self._post("/jobs/batch", body, wire.JobsAccepted, headers=headers)
        return [self.job(each.job_id) for each in accepted.jobs]

    def job(self, job_id: str) -> SyncRemoteJob:
        """A handle for the job with this id."""
        return SyncRemoteJob(self, job_id)

    def get(self, job_id: str, *, wait_seconds: int = 0) -> wire.JobView:
        """The job now; with `wait_seconds`, when it has ended or after that time."""
        headers = {"prefer": f"wait={wait_seconds}"} if wait_seconds else {}
        return self._get(path_of(job_id), wire.JobView, wait=wait_seconds, headers=headers)

    def cancel(self, job_id: str) -> str:
        """The job's status: CANCELED, or RUNNING while its worker is asked to stop."""
        return (self._post(f"{path_of(job_id)}/cancel", None, wire.JobAccepted)).status

    def events(self, job_id: str | None = None, **filters: str) -> Generator[wire.JobEvent]:
        """All events of one job; or new events of all jobs, or of a `job_type` or `queue`."""
        path = "/events" if job_id is None else f"{path_of(job_id)}/events"
        with closing(self._watch(path, **filters)) as stream:
            for each in stream:
                event = msgspec.json.decode(each.data, type=wire.JobEvent)
                yield event
                if job_id is not None and event.status in FINAL:
                    return

    def list(self, *, limit: int | None = None, **filters: str) -> Generator[wire.JobView]:
        """Newest first. Filters: `status`, `state`, `job_type`, `queue`, `tag`, `subject` and `parent_id`; `limit` is
        the maximum number."""
        cursor: str | None = None
        while limit is None or limit > 0:
            size = PAGE if limit is None else min(PAGE, limit)
            asked = {**filters, "limit": size} | ({} if cursor is None else {"cursor": cursor})
            page = self._get("/jobs", wire.JobPage, params=asked)
            yield from page.jobs
            limit = None if limit is None else limit - len(page.jobs)
            if (cursor := page.next_cursor) is None:
                return
