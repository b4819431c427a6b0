"""Markers for hooks of extensions: which jobs and types a process may move. Each gets the extensions of the process."""

from __future__ import annotations

from collections.abc import Callable


def _mine(extensions: tuple[str, ...], alias: str) -> str:
    table = alias or "holdfast_jobs"
    if not extensions:
        return f"{table}.needs IS NULL"
    lacking = f"SELECT 1 FROM {{items:{table}.needs}} AS need WHERE need.value NOT IN ({_names(extensions)})"
    return f"{table}.needs IS NOT NULL AND NOT EXISTS ({lacking})"


def _mine_or_plain(extensions: tuple[str, ...], alias: str) -> str:
    plain = _mine((), alias)
    return f"({plain} OR {_mine(extensions, alias)})" if extensions else plain


def _mine_or_freed(extensions: tuple[str, ...], _: str) -> str:
    """A finished row never changes, so the current hooks of its type are checked as well."""
    still = "SELECT value FROM {items:t.needs} AS still"
    same_type = "t.name = holdfast_jobs.type"
    freed = f"EXISTS (SELECT 1 FROM holdfast_job_types AS t WHERE {same_type} AND need.value NOT IN ({still}))"
    lacking = f"SELECT 1 FROM {{items:holdfast_jobs.needs}} AS need WHERE NOT {freed}"
    if not extensions:
        return f"(holdfast_jobs.needs IS NULL OR NOT EXISTS ({lacking}))"
    return f"holdfast_jobs.needs IS NOT NULL AND NOT EXISTS ({lacking} AND need.value NOT IN ({_names(extensions)}))"


def _names(extensions: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in extensions)  # identifiers, validated by `Extension`


def _not_held_back(extensions: tuple[str, ...], verb: str) -> str:
    """Checked only for jobs that need hooks: the others have no failed hooks."""
    if not extensions:
        return "TRUE"
    failed = "SELECT 1 FROM holdfast_hook_failures AS failed WHERE failed.job_id = holdfast_jobs.id"
    return f"NOT EXISTS ({failed} AND failed.verb = '{verb}' AND failed.next_at > {{now}})"


def _lacked(extensions: tuple[str, ...], _: str) -> str:
    if not extensions:
        return "TRUE"
    had = "SELECT value FROM {items:known.needs} AS had"
    return f"EXISTS (SELECT 1 FROM {{items:t.needs}} AS need WHERE need.value NOT IN ({had}))"


def _mine_or_plain_head(extensions: tuple[str, ...], _: str) -> str:
    """The row `head` of holdfast_ready: its job needs no hooks, or only those of this process."""
    if not extensions:
        return "NOT head.hooked"
    mine = _mine(extensions, "mine")
    return f"(NOT head.hooked OR EXISTS (SELECT 1 FROM holdfast_jobs AS mine WHERE mine.id = head.id AND {mine}))"


def _next_due(extensions: tuple[str, ...], _: str) -> str:
    """The least time of the jobs that wait for one."""
    mine = _mine_or_plain(extensions, "holdfast_jobs")
    first = "SELECT parked_at FROM holdfast_jobs WHERE parked = '{}' AND {} ORDER BY parked_at LIMIT 1"
    firsts = " UNION ALL ".join(f"SELECT ({first.format(parked, mine)}) AS at" for parked in ("waiting", "retrying"))
    return f"(SELECT min(at) FROM ({firsts}) AS firsts)"


HOOKED: dict[str, Callable[[tuple[str, ...], str], str]] = {
    "mine": _mine,
    "mine or plain": _mine_or_plain,
    "mine or freed": _mine_or_freed,
    "mine or plain head": _mine_or_plain_head,
    "next due": _next_due,
    "not held back": _not_held_back,
    "lacked": _lacked,
}
