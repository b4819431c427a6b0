"""The worker API: what a worker asks and says, for workers that are written by hand."""

# Made by `python -m tests.client.generate` from worker_api.py, and to be changed there.

from __future__ import annotations

from typing import Any

from holdfast import wire
from holdfast.client.sync.connection import NOTHING, SyncHttpConnection
from holdfast.model.reports import Complete, Fail, HeldLease, Progress, Rejection, Release, Withdrawal


class SyncWorkerApi(SyncHttpConnection):
    """With a worker's key. Every word carries the token of its lease, so that any of them may be repeated."""

    def register(self, admin_secret: str, **about: Any) -> wire.WorkerRegistered:
        """A new worker and its key, which is never shown again. Asked twice, it would be two workers."""
        body, headers = wire.WorkerRegistration(**about), {"x-admin-secret": admin_secret}
        return self._post("/api/worker/register", body, wire.WorkerRegistered, safe=False, headers=headers)

    def claim(
        self,
        *,
        queues: list[str] | None = None,
        job_types: list[str] | None = None,
        limit: int = 1,
        wait_seconds: float = 0,
        request_id: str | None = None,
        instance_id: str | None = None,
    ) -> list[wire.ClaimedJob]:
        """Up to `limit` jobs, as soon as there are any. The same `request_id` brings the same jobs."""
        body = wire.ClaimBody(queues, job_types, limit, wait_seconds, request_id or self._ids.token(), instance_id)
        answer = self._ask("POST", "/api/worker/claim", body, timeout=self._timeout + wait_seconds)
        return [] if answer.status_code == NOTHING else self._read(answer, wire.ClaimResponse).jobs

    def heartbeat(
        self,
        leases: list[HeldLease],
        *,
        status: str = "active",
        instance_id: str | None = None,
        slots: int | None = None,
    ) -> wire.HeartbeatResponse:
        body = wire.HeartbeatBody(status, instance_id, slots, leases)
        return self._post("/api/worker/heartbeat", body, wire.HeartbeatResponse)

    def progress(self, job_id: str, lease_token: str, **about: Any) -> wire.ProgressResponse:
        """`step`, `percent`, `counters`, `eta_seconds`, `parts`, `checkpoint`."""
        body = Progress(id=job_id, token=lease_token, **about)
        return self._post("/api/worker/progress", body, wire.ProgressResponse)

    def complete(self, job_id: str, lease_token: str, result: Any = None) -> wire.SettledResponse:
        body = Complete(job_id, lease_token, result)
        return self._post("/api/worker/complete", body, wire.SettledResponse)

    def fail(
        self, job_id: str, lease_token: str, error_code: str, message: str = "", **about: Any
    ) -> wire.SettledResponse:
        """`context`, `retry_after_seconds`, `permanent`."""
        body = Fail(id=job_id, token=lease_token, code=error_code, message=message, **about)
        return self._post("/api/worker/fail", body, wire.SettledResponse)

    def release(self, job_id: str, lease_token: str, delay_seconds: float = 0) -> wire.SettledResponse:
        body = Release(job_id, lease_token, delay_seconds)
        return self._post("/api/worker/release", body, wire.SettledResponse)

    def reject(
        self, job_id: str, lease_token: str, error_code: str, message: str = "", **about: Any
    ) -> wire.SettledResponse:
        """`context`."""
        body = Rejection(id=job_id, token=lease_token, code=error_code, message=message, **about)
        return self._post("/api/worker/reject", body, wire.SettledResponse)

    def withdraw(self, job_id: str, lease_token: str, target_id: str, **about: Any) -> wire.WithdrawnResponse:
        """End the waiting work of another job, for the one that is held. `reason`, `message`."""
        body = Withdrawal(id=job_id, token=lease_token, target=target_id, **about)
        return self._post("/api/worker/withdraw", body, wire.WithdrawnResponse)

    def report(self, body: wire.ReportsBody) -> wire.ReportsResponse:
        """Many words at once; the answers stand in the order of the words."""
        return self._post("/api/worker/report", body, wire.ReportsResponse)
