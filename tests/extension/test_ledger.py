"""C-40: a ledger that an extension keeps balances, whatever becomes of its jobs and of the processes that move them."""

import pytest

from holdfast.store.migrate import migrate
from tests.extension import toy
from tests.extension.histories import TOGETHER, histories, killed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", range(0, 300, 2 * TOGETHER))
async def test_the_ledger_balances_over_random_histories(store_url: str, start: int) -> None:
    """25 on each store, chosen by the commit; 300 in all in `make soak`, before the thousands that it adds."""
    async with histories(store_url) as story:
        first = start + (0 if store_url.startswith("sqlite") else TOGETHER)
        for seed in range(first, first + TOGETHER):
            await story.run(seed)
        assert story.refused > 10, "the process without the extension was too idle to prove anything"
        assert sum(process.deaths for process in story.processes) > 5


async def test_the_ledger_balances_when_processes_are_killed(store_url: str) -> None:
    await migrate(store_url, [toy.ext])
    assert await killed(store_url, seed=1, rounds=2) > 0
