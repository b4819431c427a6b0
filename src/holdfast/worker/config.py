"""`WorkerConfig`: how many jobs a worker runs at once, from which queues, and how long it waits for them to stop."""

from __future__ import annotations

from dataclasses import dataclass

TICK_SECONDS = 0.2  # between two rounds of the monitor
WAIT_SECONDS = 5.0  # of one wait for a hint, when a claim found nothing
BUFFERED_SECONDS_MAX = 1.0  # a job that is buffered for longer is released: another worker may start it sooner


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    concurrency: int = 10
    queues: list[str] | None = None
    stop_grace_seconds: float = 25
    kill_grace_seconds: float = 5  # from the request to stop until a child is killed or a thread given up
    timeout_grace_seconds: float = 0  # the same, for an attempt that timed out
    replaceable: bool = False  # a supervisor starts another process when this one ends
    heartbeats: bool = True  # a heartbeat process renews the leases; without one they are never renewed
