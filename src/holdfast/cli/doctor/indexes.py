"""`holdfast doctor`: checks for missing and invalid indexes, without which queries are slow."""

from __future__ import annotations

from holdfast.cli.doctor.finding import Finding, fail, ok


def check_indexes(expected: set[str], found: dict[str, bool]) -> Finding:
    missing = sorted(expected - found.keys())
    invalid = sorted(name for name, valid in found.items() if not valid)
    if missing:
        return fail("indexes", f"missing: {', '.join(missing)}", "create them as printed by `holdfast migrate --sql`")
    if invalid:
        return fail("indexes", f"not valid: {', '.join(invalid)}", "run REINDEX INDEX CONCURRENTLY for each of them")
    return ok("indexes", f"all {len(expected)} exist and are valid")
