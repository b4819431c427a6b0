"""Indexes that are gone or unfinished: nothing breaks without them, and everything is slow."""

from __future__ import annotations

from holdfast.cli.doctor.finding import Finding, fail, ok


def judge(expected: set[str], found: dict[str, bool]) -> Finding:
    gone = sorted(expected - found.keys())
    broken = sorted(name for name, valid in found.items() if not valid)
    if gone:
        return fail("indexes", f"missing: {', '.join(gone)}", "make them again as `holdfast migrate --sql` prints them")
    if broken:
        return fail("indexes", f"not valid: {', '.join(broken)}", "REINDEX INDEX CONCURRENTLY each of them")
    return ok("indexes", f"all {len(expected)} are there and valid")
