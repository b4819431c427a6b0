"""`python -m tests.mutation.run [--all | --sample | NAME ...]`: switch each mutant on and see whether a test notices.

Each mutant gets a test run of its own, which stops at the first failure: that is a kill. A run that stays green is a
survivor, and the command fails and names it.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from tests.mutation.mutants import DIALECTS, VARIABLE, Mutant, all_mutants
from tests.sampling import commit
from tests.servers.postgres import running

ROOT = Path(__file__).parents[2]
DATABASE = "HOLDFAST_TEST_DATABASE_URL"
PARALLEL = 2
SAMPLES = 100  # that all mutants are divided into
SOME_FAILED, WITHOUT_FAILURES = 1, (0, 5)  # 5: none of these tests is for this store
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--soak", "-p", "no:cacheprovider")

# The tests that are run against each mutant on every store: those closest to it, then all that could notice.
GUARDS = ["tests/store/test_guards.py", "tests/engine/test_guards.py"]
HOOKS = ["tests/store/test_hook_guards.py"]
KNOWN = {
    "orphans": ["tests/known/test_orphans_behind_a_full_batch.py"],
    "spoilt": ["tests/known/test_corrupt_rows.py"],
}
TOP = ("waiting", "counts", "held", "running", "workers", "flow", "ended")
PRUNED = ["tests/known/test_pruned_jobs.py", "tests/known/test_pruning_and_webhooks.py"]
KEPT = ("note_pruned", "keep_keys", "prune_kept_keys", "drop_kept_key", "pruned_jobs")
PRUNING = ("listening_tenants", "unread_jobs", "overdue_succeeded", "overdue_unhappy", "overdue_deliveries")
SET_BACK = (
    *("leases", "retries", "delays", "turns", "tokens", "limits", "workers", "counts", "sweeps", "deliveries", "grace"),
)
KEYS = ("live_key", "key", "revoke_key", "revoke_keys_of_worker", "end_key_soon", "keys_were_used")
TASKS = ("take_task", "end_task", "note_task_failure", "forget_tasks", "add_tasks")
SESSIONS = ("live_session", "end_session", "sessions_were_used", "prune_sessions")
NEEDS = ("adopt_jobs", "adopt_lane", "free_jobs", "put_needs", "needs_of_type")
FORGOTTEN = (
    *("types_with_needs", "needs_that_name", "change_needs"),
    *(f"forget_{what}" for what in ("extension", "tasks_of", "failures_of")),
)
HOOK_FAILURES = ("hooked_jobs", "clear_hook_failures", "prune_hook_failures", "note_hook_failure")
LIMITED = [
    "tests/store/test_limits.py",
    *(
        f"tests/engine/test_{what}.py"
        for what in ("limits", "limit_keys", "limit_polls", "limit_changes", "limit_use", "why_limits")
    ),
    *(f"tests/engine/test_{what}.py" for what in ("limits_isolation", "ageing")),
]
LIMITS = (
    *("lock_limits", "limit_usage", "hold_units", "spend_tokens", "end_turns", "begin_turns", "open_key_lanes"),
    *("open_changed_lanes", "open_full_lanes", "limits", "limit", "lock_limit", "put_limit", "drop_limit"),
    *("changed_limits", "prune_tokens", "count_running", "mark_limited", "limits_of_job", "set_weight", "weights"),
    *("lane_levels", "open_key_work", "refill_tokens", "limits_in_force", "units_in_use"),
)
CLOSE = {
    "schema": ["tests/store/test_constraints.py", "tests/store/test_schema.py", "tests/store/test_limits.py"],
    **dict.fromkeys(LIMITS, LIMITED),
    **{
        query: ["tests/store/test_limit_rows.py", *LIMITED]
        for query in (
            *("limits", "limit", "lock_limit", "drop_limit", "limits_of_job", "limit_usage", "lock_limits"),
            *("weights", "set_weight", "changed_limits"),
        )
    },
    "open_lanes": [
        "tests/engine/test_lanes.py",
        "tests/engine/test_guards.py",
        "tests/engine/test_claim.py",
        "tests/store/test_plans.py",
    ],
    "jobs_elsewhere": ["tests/engine/test_only_lane.py"],
    "claim_jobs": [
        *KNOWN["spoilt"],
        "tests/engine/test_claim.py",
        "tests/store/test_guards.py",
        "tests/known/test_clock_set_back.py",
    ],
    **{query: [*KNOWN["spoilt"], *GUARDS] for query in ("retry_jobs", "reap_to_retry")},
    "mark_due_jobs": ["tests/engine/test_children.py", *KNOWN["spoilt"], *GUARDS],
    "overdue": ["tests/engine/test_guards.py", "tests/store/test_plans.py", "tests/engine/test_claim.py"],
    **{
        read: ["tests/engine/test_poll.py", "tests/store/test_plans.py"]
        for read in ("claimable", "held_by", "still_held")
    },
    "instances": ["tests/engine/test_poll.py", "tests/store/test_plans.py", "tests/known/test_instance_names.py"],
    **{f"top_{what}": ["tests/store/test_top.py"] for what in TOP},
    **{f"bench_{what}": ["tests/store/test_bench.py"] for what in ("left", "waiting", "done", "finished")},
    "waiting_lanes": ["tests/cli/test_doctor.py", "tests/store/test_plans.py"],
    "leases_long_over": ["tests/cli/test_doctor.py", "tests/store/test_plans.py"],
    "recent_deaths": ["tests/cli/test_doctor.py", "tests/store/test_plans.py"],
    "hold_job": ["tests/store/test_guards.py"],
    "lock_job": ["tests/engine/test_withdraw.py"],
    "claimable_jobs": [*HOOKS, "tests/engine/test_claim_guards.py", "tests/engine/test_lists_of_jobs.py"],
    "defer_jobs": ["tests/engine/test_claim_guards.py"],
    "claim_found": ["tests/engine/test_withdraw.py", "tests/engine/test_claim_guards.py"],
    "due_retries": [*HOOKS, "tests/store/test_plans.py"],
    "needs_of_types": HOOKS,
    **{query: ["tests/engine/test_wake.py"] for query in ("wake_waiting", "wake_running")},
    "release_jobs": [*(f"tests/engine/test_{what}.py" for what in ("wake", "children", "hook_failures")), *GUARDS],
    **{query: ["tests/engine/test_children.py"] for query in ("mark_due_parents", "children", "unfinished_children")},
    **{query: ["tests/server/test_keys.py"] for query in KEYS},
    **{query: ["tests/engine/test_sessions.py"] for query in SESSIONS},
    "health": [*HOOKS, "tests/server/test_health.py", "tests/engine/test_fleet.py", "tests/store/test_plans.py"],
    "beat_worker": ["tests/engine/test_fleet.py", "tests/store/test_plans.py"],
    **{query: ["tests/engine/test_extension_tasks.py"] for query in TASKS},
    "stale_extensions": ["tests/engine/test_missing_extensions.py"],
    "jobs_that_need": ["tests/engine/test_missing_extensions.py", "tests/store/test_plans.py"],
    "due_work": ["tests/engine/test_due_work.py", "tests/known/test_clock_set_back.py"],
    **{
        query: ["tests/engine/test_queue_stats.py"]
        for query in ("queue_stats", "worker_stats", "counted", "begin_count", "end_count")
    },
    "queue_counts": ["tests/cli/test_queues.py"],
    "held_by_worker": ["tests/engine/test_workers.py", "tests/cli/test_workers.py", "tests/store/test_plans.py"],
    "jobs_of_worker": ["tests/server/test_admin_workers.py", "tests/store/test_plans.py"],
    "successors": ["tests/server/test_admin_redrive.py", "tests/store/test_plans.py"],
    **{f"{what}_audit": ["tests/engine/test_audit.py"] for what in ("page", "walk")},
    "last_sweep": ["tests/cli/test_doctor.py"],
    "note_claim_scopes": ["tests/known/test_why_with_http_workers.py"],
    "forget_workers": ["tests/engine/test_workers.py", "tests/store/test_plans.py"],
    **{query: ["tests/known/test_past_workers.py"] for query in ("keep_worker_names", "attempts")},
    "accept_jobs": [*GUARDS, "tests/known/test_clock_set_back.py"],
    "orphans": [*KNOWN["orphans"], "tests/known/test_clock_set_back.py", "tests/store/test_plans.py"],
    "insert_jobs": [
        *HOOKS,
        "tests/known/test_restored_database.py",
        "tests/known/test_pruned_jobs.py",
        "tests/engine/test_create.py",
        "tests/known/test_group_commit.py",
    ],
    "insert_plain_jobs": [*HOOKS, "tests/known/test_restored_database.py", "tests/engine/test_create_alike.py"],
    "insert_plain_job": [*HOOKS, "tests/known/test_restored_database.py", "tests/engine/test_create_alike.py"],
    **{query: ["tests/webhooks/test_failure_counts.py"] for query in ("failures", "put_figures")},
    "policy_body": ["tests/known/test_newer_versions.py"],
    "note_conflict": ["tests/known/test_two_apps_one_type.py"],
    **{query: ["tests/engine/test_guards.py"] for query in ("policy_id", "tenant_id", "put_lane", "lane_id")},
    "jobs_by_key": ["tests/known/test_pruned_jobs.py", "tests/engine/test_guards.py", "tests/store/test_plans.py"],
    "mark_sweep": ["tests/engine/test_guards.py", "tests/engine/test_reap.py"],
    "lost_jobs": [f"tests/engine/test_{what}.py" for what in ("guards", "reap", "cancel", "crash_detector")],
    **{f"{what}_set_back": ["tests/known/test_clock_set_back.py", "tests/store/test_limits.py"] for what in SET_BACK},
    "requeue_due": [*KNOWN["spoilt"], *GUARDS, "tests/store/test_plans.py"],
    "prunable_succeeded": ["tests/engine/test_guards.py", "tests/engine/test_prune.py", *PRUNED],
    "prunable_unhappy": ["tests/store/test_plans.py", "tests/engine/test_prune.py", *PRUNED],
    **{
        query: ["tests/known/test_pruning_and_webhooks.py", "tests/engine/test_guards.py", "tests/store/test_plans.py"]
        for query in PRUNING
    },
    "ahead_in_lane": ["tests/engine/test_why.py"],
    "lane": ["tests/engine/test_guards.py"],
    "jobs_by_id": ["tests/engine/test_hooks.py"],
    **{query: ["tests/engine/test_required_extensions.py"] for query in NEEDS},
    **{query: ["tests/engine/test_hook_failures.py"] for query in HOOK_FAILURES},
    "hook_failures": ["tests/engine/test_why_extensions.py"],
    **{query: ["tests/server/test_app_lifecycles.py"] for query in ("job_types", "put_lifecycle")},
    "note_deferred": ["tests/engine/test_claim_guards.py"],
    **{query: ["tests/engine/test_extensions.py", "tests/store/test_plans.py"] for query in FORGOTTEN},
    "put_parts": ["tests/engine/test_guards.py", "tests/engine/test_progress.py"],
    **{
        query: ["tests/engine/test_parts.py"]
        for query in ("reopen_parts", "reset_parts", "insert_parts_event", "number_event")
    },
    **{
        read: ["tests/engine/test_reads.py"]
        for read in ("job", "page_jobs", "count_jobs", "history", "feed_end", "ids_between")
    },
    **{f"prune_{what}": ["tests/engine/test_prune.py"] for what in ("events", "parts")},
    **{query: ["tests/known/test_pruned_jobs.py", "tests/engine/test_guards.py"] for query in KEPT},
    **{f"{verb}_attempts": ["tests/engine/test_prune.py"] for verb in ("keep", "old", "prune")},
    **{query: ["tests/known/test_event_log_order.py"] for query in ("log_is_ahead", "rebase")},
    **{read: ["tests/engine/test_summaries.py"] for read in ("summaries", "page_summaries", "secret")},
    "feed": ["tests/engine/test_guards.py", "tests/engine/test_reads.py"],
    "changed_workers": ["tests/engine/test_worker_events.py", "tests/store/test_plans.py"],
    **{f"{what}_worker_events": ["tests/engine/test_worker_events.py"] for what in ("insert", "old", "drop")},
    "mark_workers_recorded": ["tests/engine/test_worker_events.py"],
    "silent_workers": ["tests/engine/test_queue_stats.py", "tests/engine/test_due_work.py"],
    "claiming_instances": ["tests/engine/test_poll.py", "tests/engine/test_crash_detector.py"],
    "ended_jobs": ["tests/engine/test_result_waits.py"],
    "last_key_lane": ["tests/store/test_limits.py"],
    **{f"{verb}_claim": ["tests/engine/test_claim_requests.py"] for verb in ("begin", "answer", "repeat", "drop")},
    "prune_claims": ["tests/engine/test_claim_requests.py"],
    **{
        read: ["tests/engine/test_open_work.py", "tests/store/test_plans.py"]
        for read in ("open_work", "next_open_work")
    },
    **{read: ["tests/engine/test_open_work.py"] for read in ("enabled_workers", "policies_of_jobs")},
    "event_jobs": ["tests/server/test_feed.py"],
    "log_extent": ["tests/server/test_stream_resets.py"],
    **{write: ["tests/webhooks/test_subscriptions.py"] for write in ("webhooks", "hold_webhook", "drop_webhook")},
    **{
        read: ["tests/webhooks/test_fan_out.py"]
        for read in ("reader", "locked_reader", "advance_reader", "webhook_jobs")
    },
    **{f"{verb}_delivery": ["tests/webhooks/test_deliveries.py"] for verb in ("claim", "settle", "replay")},
    **{f"{verb}_deliveries": ["tests/webhooks/test_deliveries.py"] for verb in ("claim", "page", "prune")},
    **{f"webhook_{what}": ["tests/webhooks/test_deliveries.py"] for what in ("fails", "answers")},
    "change_webhook": ["tests/webhooks/test_subscriptions.py", "tests/webhooks/test_deliveries.py"],
    **{
        query: ["tests/webhooks/test_deliveries.py"]
        for query in ("disable_webhook", "webhooks_with_work", "deliveries_by_id")
    },
}
LISTS = ["tests/engine/test_lists_of_jobs.py", "tests/engine/test_due_work.py", "tests/store/test_plans.py"]
CLOSE_IN_SCHEMA = {
    **{f"holdfast_drop_{what}": LISTS for what in ("stale_ready", "claim_batches")},
    **{f"holdfast_{what}": LISTS for what in ("running", "open_jobs", "ready")},
    "holdfast_attempts": ["tests/engine/test_reads.py", "tests/engine/test_prune.py"],
}
TRIGGERS = ["tests/store/test_job_triggers.py"]
EVERY = [
    "tests/store/test_guards.py",
    "tests/store/test_constraints.py",
    "tests/store/test_plans.py",
    *TRIGGERS,
    "tests/engine",
]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation.run", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants whose name contains one of these")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--sample", action="store_true", help="a few of them, chosen by the seed")
    parser.add_argument("--seed", help="of the sample, instead of the commit")
    parser.add_argument("--list", action="store_true", help="only list them")
    options = parser.parse_args(arguments)
    mutants = list(all_mutants().values())
    if options.sample:
        mutants = sample(mutants, options.seed or commit())
    elif not options.all:
        mutants = [mutant for mutant in mutants if any(name in mutant.name for name in options.names)]
    if options.list:
        print(*[mutant.name for mutant in mutants], sep="\n")
        return 0
    with contextlib.ExitStack() as stack:
        if not os.environ.get(DATABASE):
            os.environ[DATABASE] = stack.enter_context(running()).dsn()  # one server for all runs
        if options.all and (failed := first_failure_without_mutants()):
            print(f"no mutant is to blame for {failed}: hunt when all tests pass")
            return 1
        return 1 if hunt(mutants) else 0


def first_failure_without_mutants() -> str | None:
    """Where a test fails anyway, every mutant would look killed."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        return next(filter(None, pool.map(lambda store: first_failure(EVERY, store), DIALECTS)), None)


def hunt(mutants: list[Mutant]) -> list[Mutant]:
    """Run them all, print how each ended, and return the survivors."""
    survivors = []
    with ThreadPoolExecutor(PARALLEL) as pool:
        for mutant, (killer, seconds) in zip(mutants, pool.map(timed_killer, mutants), strict=True):
            print(f"{'killed  ' if killer else 'SURVIVED'} {seconds:5.1f} s  {mutant.name}", flush=True)
            if killer is None:
                survivors.append(mutant)
            else:
                print(f"{'':19}{killer}", flush=True)
    print(f"{len(mutants) - len(survivors)}/{len(mutants)} killed")
    return survivors


def timed_killer(mutant: Mutant) -> tuple[str | None, float]:
    began = time.monotonic()
    return killer_of(mutant), time.monotonic() - began


def killer_of(mutant: Mutant) -> str | None:
    """The closest tests first, on every store: what only PostgreSQL notices need not wait for the rest on SQLite."""
    closest, *close = close_to(mutant)
    for tests in filter(None, ([closest], close, EVERY)):
        for store in mutant.stores:
            if failed := first_failure(tests, store, mutant):
                return failed
    return None


def close_to(mutant: Mutant) -> list[str]:
    close = HOOKS if "{mine" in mutant.name or "{not held back" in mutant.name else []
    if "{lock_timeout}" in mutant.name:
        close = ["tests/known/test_group_commit.py"]
    if found := re.match(r"\w+ schema: (?:without trigger )?(holdfast_\w+)(?:/| without|$)", mutant.name):
        close = CLOSE_IN_SCHEMA.get(found[1], TRIGGERS)
    return [*close, *CLOSE.get(mutant.area, GUARDS)]


def first_failure(tests: list[str], store: str, mutant: Mutant | None = None) -> str | None:
    """The first test that fails. A crash of the run itself is no failure of a test, and no kill."""
    against = ["-p", "tests.mutation.closest_first"] if mutant else []
    outcome = subprocess.run(
        [*PYTEST, "--store", store, *against, *tests],
        cwd=ROOT,
        env={**os.environ, **({VARIABLE: mutant.name} if mutant else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = re.search(r"(?m)^(?:FAILED|ERROR) (.*)", outcome.stdout)
    if outcome.returncode == SOME_FAILED and failed:
        return failed[1]
    if outcome.returncode not in WITHOUT_FAILURES:
        raise RuntimeError(f"the run against {mutant and mutant.name} did not work:\n{outcome.stdout[-2000:]}")
    return None


def sample(mutants: list[Mutant], seed: str, samples: int = SAMPLES) -> list[Mutant]:
    """Over so many commits, nearly every mutant gets its turn."""
    turn = int(sha256(seed.encode()).hexdigest(), 16) % samples
    return [mutant for mutant in mutants if int(sha256(mutant.name.encode()).hexdigest(), 16) % samples == turn]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
