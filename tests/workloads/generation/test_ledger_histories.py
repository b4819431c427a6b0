"""The ledger balances over 100,000 random histories on both stores: C-40, H13, S11, R004-12, R004-14, R004-25."""

import pytest

from holdfast.store.migrate import migrate
from holdfast.workloads.generation import ext
from tests.workloads.generation.ledger_histories import TOGETHER, run_all

HISTORIES = 50_000  # on each store


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start", range(0, HISTORIES, TOGETHER))
async def test_the_ledger_balances_over_random_histories(store_url: str, start: int) -> None:
    """`make test` runs 200 on each store, chosen by the commit: 400 in all. `make soak` runs all 100,000."""
    await migrate(store_url, [ext])
    first = start + (0 if store_url.startswith("sqlite") else HISTORIES)
    seen = await run_all(store_url, range(first, first + TOGETHER))
    for what in ("before a commit", "after a commit", "refused without the service"):
        assert seen[what] > 0, f"too calm to prove anything: {seen}"
    assert seen["insufficient_credits"] + seen["quota_exceeded"] > 0, seen
