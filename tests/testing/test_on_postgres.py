"""The plugin on PostgreSQL: each test has a copy of the user's database, so that code with its own transaction runs."""

import asyncpg
import psycopg
import pytest

from holdfast import App
from holdfast.errors import Invalid
from holdfast.testing import jobs_of
from tests.conftest import administer

pytestmark = pytest.mark.postgres
pytest_plugins = ["pytester"]

app = App(database_url="sqlite:////nowhere/real.db")
ORDER = "INSERT INTO orders VALUES (1)"


@app.job(max_attempts=2)
async def ship(order: int) -> int:
    if order < 0:
        raise ValueError("no such order")
    return order


@app.job(isolation="process")
def weigh(order: int) -> int:
    return 2 * order


@pytest.fixture
async def shop_url(fresh_postgres_url: str) -> str:
    """A database with a table of the user's own."""
    await administer(fresh_postgres_url, "CREATE TABLE orders (number integer)")
    return fresh_postgres_url


async def test_a_job_enqueued_in_the_tests_own_transaction_runs_after_the_commit(shop_url: str) -> None:
    with jobs_of(app, database_url=shop_url) as jobs:
        connection = await asyncpg.connect(jobs.database_url)
        async with connection.transaction():
            await connection.execute(ORDER)
            await ship.options(connection=connection).enqueue(order=1)
            assert not jobs.enqueued(ship)
        assert [ran.result for ran in await jobs.drain()] == [1]
        transaction = connection.transaction()
        await transaction.start()
        await ship.options(connection=connection).enqueue(order=2)
        await transaction.rollback()
        assert not jobs.enqueued(ship)
        await connection.close()
    await administer(
        shop_url, "CREATE TABLE nothing_ran_here AS SELECT count(*) FROM holdfast_jobs HAVING count(*) = 0"
    )


async def test_each_jobs_of_starts_with_a_copy_of_the_database(shop_url: str) -> None:
    for _ in range(2):
        with jobs_of(app, database_url=shop_url.replace("postgresql:", "postgresql+asyncpg:")) as jobs:
            assert jobs.enqueued() == []
            await ship.enqueue(order=1)
            assert len(jobs.enqueued(ship)) == 1
    rest = await asyncpg.connect(shop_url)
    assert await rest.fetchval("SELECT count(*) FROM holdfast_jobs") == 0
    assert await rest.fetchval("SELECT count(*) FROM pg_database WHERE datname LIKE 'holdfast\\_test\\_%'") == 0
    await rest.close()


def test_sync_code_retries_and_child_processes_work_on_postgres(shop_url: str) -> None:
    with jobs_of(app, database_url=shop_url) as jobs:
        with psycopg.connect(jobs.database_url) as connection:
            connection.execute(ORDER)
            ship.options(connection=connection).enqueue_sync(order=3)
        weigh.enqueue_sync(order=4)
        failing = ship.enqueue_sync(order=-1)
        ran = jobs.drain_sync(until_done=True, raise_errors=False)
        assert sorted((each.type, each.verb) for each in ran) == [
            ("ship", "complete"),
            ("ship", "fail"),
            ("ship", "fail"),
            ("weigh", "complete"),
        ]
        assert jobs.get(failing).status == "FAILED"


async def test_a_database_in_use_cannot_be_copied_and_raises_with_a_hint(shop_url: str) -> None:
    connection = await asyncpg.connect(shop_url)
    with pytest.raises(Invalid, match=r"others are connected.*jobs\.database_url"), jobs_of(app, database_url=shop_url):
        pass
    await connection.close()


def test_the_url_comes_from_the_command_line_or_the_configuration(
    pytester: pytest.Pytester, fresh_postgres_url: str
) -> None:
    pytester.makeconftest("""
        import pytest
        from holdfast import App

        app = App(database_url="sqlite:////nowhere/real.db")

        @app.job()
        async def double(number: int) -> int:
            return 2 * number

        @pytest.fixture
        def jobs(holdfast_jobs):
            return holdfast_jobs(app)
    """)
    test = """
        from conftest import double

        def test_double(jobs):
            double.enqueue_sync(4)
            assert [ran.result for ran in jobs.drain_sync()] == [8]
            assert jobs.database_url.startswith("postgresql://")
    """
    pytester.makepyfile(test)
    pytester.makeini(f"[pytest]\nfilterwarnings = error\nholdfast_database_url = {fresh_postgres_url}")
    options = ("-p", "no:cacheprovider", "-p", "no:asyncio")
    pytester.runpytest_subprocess(*options, timeout=100).assert_outcomes(passed=1)
    typed = pytester.parseconfig("--holdfast-database-url", "postgresql://elsewhere/shop")
    assert typed.getoption("holdfast_database_url") == "postgresql://elsewhere/shop"
