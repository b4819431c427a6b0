"""The peers, each with settings that its own documentation recommends, and the command that starts its worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """`work` is started once for each worker process, or once in all if it says {processes}. `pending` is SQL that
    finds a row while a job is not yet known to be done. `multiply` is SQL that makes {factor} more of each job, where
    the peer's own bulk call would take too long to make a million."""

    name: str
    package: str
    store: str
    work: str
    setting: str
    jobs: int = 20_000  # to drain; fewer where so many would take too long
    enqueue: tuple[str, ...] = ("one",)
    pending: str | None = None
    behind: bool = False  # whether it is measured with a million jobs behind
    multiply: str | None = None
    again: bool = False  # another setting of the peer above: enqueueing is the same
    reference: bool = False  # no peer but a floor: it is only filled and drained


ALL_WAYS = ("one", "bulk", "crowd")
HOLDFAST_PENDING = "SELECT 1 FROM holdfast_jobs WHERE state IN ('created', 'queued', 'running', 'retrying')"
GRAPHILE_PENDING = "SELECT 1 FROM graphile_worker._private_jobs"

PEERS = [
    Peer(
        "holdfast",
        "holdfast",
        "postgres",
        "{bin}/holdfast worker --app holdfast_jobs:app --concurrency 100 --processes {processes}",
        "100 slots a process",
        enqueue=ALL_WAYS,
        pending=HOLDFAST_PENDING,
        behind=True,
    ),
    Peer(
        "pgqueuer, batch 100",
        "pgqueuer",
        "postgres",
        "{bin}/pgq run --batch-size 100 pgqueuer_jobs:main",
        "asyncpg, 100 jobs a fetch",
        enqueue=ALL_WAYS,
        pending="SELECT 1 FROM pgqueuer",
        behind=True,
    ),
    Peer(
        "pgqueuer",
        "pgqueuer",
        "postgres",
        "{bin}/pgq run pgqueuer_jobs:main",
        "asyncpg, its default of 10 jobs a fetch",
        pending="SELECT 1 FROM pgqueuer",
        again=True,
    ),
    Peer(
        "chancy",
        "chancy",
        "postgres",
        "{bin}/chancy --app chancy_jobs.chancy worker start",
        "executor for coroutines, 100 slots, eager polling",
        enqueue=ALL_WAYS,
        pending="SELECT 1 FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')",
        behind=True,
        multiply="""
            INSERT INTO chancy_jobs (id, queue, func, kwargs, limits, meta, priority, max_attempts, scheduled_at)
            SELECT gen_random_uuid(), queue, func, kwargs, limits, meta, priority, max_attempts, scheduled_at
            FROM chancy_jobs, generate_series(1, {factor})""",
    ),
    Peer(
        "procrastinate",
        "procrastinate",
        "postgres",
        "{bin}/procrastinate --app procrastinate_jobs.app worker --concurrency 10",
        "10 jobs at a time",
        jobs=5_000,
        enqueue=ALL_WAYS,
        pending="SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        behind=True,
        multiply="""
            INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args)
            SELECT queue_name, task_name, priority, args FROM procrastinate_jobs, generate_series(1, {factor})""",
    ),
    Peer(
        "dbos",
        "dbos",
        "postgres",
        "{bin}/python drive.py dbos_jobs work",
        "defaults: polls each second",
        jobs=3_000,
        pending="SELECT 1 FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
    ),
    Peer(
        "graphile-worker, local queue",
        "graphile-worker",
        "postgres",
        "{bin}/node graphile_worker_jobs.mjs work --local",
        "Node; local queue of 500, completions in batches, 24 jobs at a time",
        enqueue=ALL_WAYS,
        pending=GRAPHILE_PENDING,
        behind=True,
    ),
    Peer(
        "graphile-worker",
        "graphile-worker",
        "postgres",
        "{bin}/node graphile_worker_jobs.mjs work",
        "Node; 20 jobs at a time on 20 connections",
        jobs=10_000,
        pending=GRAPHILE_PENDING,
        again=True,
    ),
    Peer(
        "pg-boss, batch 100",
        "pg-boss",
        "postgres",
        "{bin}/node pg_boss_jobs.mjs work",
        "Node; 100 jobs a fetch, again at once while full, woken by notifications",
        enqueue=ALL_WAYS,
        pending="SELECT 1 FROM pgboss.job WHERE name = 'noop' AND state < 'completed'",
    ),
    Peer(
        "raw loop",
        "raw",
        "postgres",
        "{bin}/python drive.py raw_jobs work",
        "not a job queue: one narrow table, 100 jobs a statement, no history, no leases",
        enqueue=("one", "bulk"),
        pending="SELECT 1 FROM raw_jobs WHERE state < 2",
        reference=True,
    ),
    Peer(
        "celery",
        "celery",
        "redis",
        "{bin}/celery --app celery_jobs worker --concurrency {processes} --loglevel WARNING"
        " --without-gossip --without-mingle",
        "acks_late, no result backend",
        jobs=10_000,
    ),
    Peer(
        "dramatiq",
        "dramatiq",
        "redis",
        "{bin}/dramatiq dramatiq_jobs --processes {processes} --threads 8",
        "8 threads a process",
        jobs=10_000,
    ),
    Peer(
        "taskiq",
        "taskiq",
        "redis",
        "{bin}/taskiq worker taskiq_jobs:broker --workers {processes} --log-level WARNING",
        "streams with acknowledgements",
        jobs=10_000,
        enqueue=("one", "crowd"),
    ),
    Peer(
        "saq",
        "saq",
        "redis",
        "{bin}/saq saq_jobs.settings --workers {processes} --quiet",
        "100 slots",
        jobs=10_000,
        enqueue=("one", "crowd"),
    ),
    Peer(
        "arq",
        "arq",
        "redis",
        "{bin}/arq arq_jobs.Worker",
        "tuned: 100 slots, polls 20 times a second, keeps no results",
        jobs=5_000,
        enqueue=("one", "crowd"),
    ),
    Peer(
        "rq",
        "rq",
        "redis",
        "{bin}/rq worker-pool --num-workers {processes} --url {url} --quiet",
        "defaults: a process for each job",
        jobs=400,
        enqueue=("one", "bulk"),
    ),
    Peer(
        "holdfast on SQLite",
        "holdfast",
        "sqlite",
        "{bin}/holdfast worker --app holdfast_jobs:app --concurrency 100 --processes {processes}",
        "synchronous=FULL, 100 slots a process",
        enqueue=ALL_WAYS,
        pending=HOLDFAST_PENDING,
    ),
    Peer(
        "huey on SQLite",
        "huey",
        "sqlite",
        "{bin}/huey_consumer huey_jobs.huey --worker-type process --workers {processes} --quiet --delay 0.02"
        " --max-delay 0.1",
        "synchronous=FULL, polls 10 to 50 times a second",
        jobs=10_000,
    ),
    Peer(
        "dbos on SQLite",
        "dbos",
        "sqlite",
        "{bin}/python drive.py dbos_jobs work",
        "defaults: polls each second",
        jobs=3_000,
        pending="SELECT 1 FROM workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
    ),
    Peer(
        "raw loop on SQLite",
        "raw",
        "sqlite",
        "{bin}/python drive.py raw_jobs work",
        "not a job queue: synchronous=FULL, 100 jobs a statement, no history, no leases",
        enqueue=("one", "bulk"),
        pending="SELECT 1 FROM raw_jobs WHERE state < 2",
        reference=True,
    ),
]
