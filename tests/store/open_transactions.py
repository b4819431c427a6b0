"""Whether a transaction was left open, as opposed to one that is open for an instant."""

from typing import Any

from tests.worker.in_process import until

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"


async def assert_none_is_left_open(connection: Any) -> None:
    """Wait for a moment without an open transaction; one that was left open stays."""

    async def none_is_open() -> bool:
        return not await connection.fetchval(OPEN)

    await until(none_is_open)
