"""The SQL of the statements that run most often, as files: what a change does to them shows in its diff.

`python -m tests.store.golden` writes them anew.
"""

from pathlib import Path

from holdfast.store.render import POSTGRES, SQLITE
from holdfast.store.render.__main__ import sql_of

HOT = (
    *("insert_jobs", "insert_jobs.observed.for_one", "insert_plain_jobs", "insert_plain_jobs.minimal.for_one"),
    "insert_plain_job",
    *("open_lanes", "claim_jobs", "overdue"),
    *("open_key_lanes", "lock_limits", "limit_usage", "hold_units", "end_turns", "begin_turns"),
    *("renew_leases", "beat_worker", "advance_jobs"),
    *("complete_jobs", "complete_jobs.observed.for_one", "release_jobs", "cancel_waiting"),
    *("held_jobs", "retry_jobs", "dead_letter_jobs"),
    *("lost_jobs", "reap_to_retry", "mark_due_jobs", "requeue_due"),
    *("claimable", "open_work", "due_work"),
)


def golden() -> dict[Path, str]:
    folder = Path(__file__).parent
    return {folder / dialect / f"{name}.sql": sql_of(name, dialect) for dialect in (POSTGRES, SQLITE) for name in HOT}
