"""A program that enqueues in its own transaction and ends: it prints nothing, and its wake-ups are sent or dropped."""

import asyncio
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from holdfast import App
from holdfast.store.notify import CHANNEL
from tests.cli.processes import environment
from tests.docs.pages import blocks
from tests.docs.test_examples import POSTGRES

CLOSED_AT_ANY_MOMENT = """
import asyncio, sys

import asyncpg, psycopg

from holdfast import App

app = App(database_url=sys.argv[1])


@app.job()
async def ship(order: int) -> None: ...


async def from_async_code() -> None:
    connection = await asyncpg.connect(sys.argv[1])
    for moment in (0, 0.01, 0.02, 0.021, 0.03, 0.2, 0.201):  # around the moments at which wake-ups are sent
        async with app:
            async with connection.transaction():
                await ship.options(connection=connection).enqueue(order=1)
            await asyncio.sleep(moment)
    await asyncio.sleep(1.1)  # the last wake-up of the last job would be sent now
    await connection.close()


def from_sync_code() -> None:
    with psycopg.connect(sys.argv[1]) as connection:
        for _ in range(3):
            ship.options(connection=connection).enqueue_sync(order=2)
            app.close_sync()
        ship.options(connection=connection).enqueue_sync(order=2)


asyncio.run(from_async_code())
from_sync_code()
"""


def run(program: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, program, *arguments]
    return subprocess.Popen(
        command, cwd=program.parent, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
async def test_the_transaction_example_of_the_first_page_never_prints_a_warning(
    fresh_postgres_url: str, tmp_path: Path
) -> None:
    on_the_page = blocks("docs/guides/jobs.md", "python")
    example = next(block for block in on_the_page if block.heading == "Transactional enqueue")
    text = example.text.replace(POSTGRES, fresh_postgres_url).replace("CREATE TABLE", "CREATE TEMPORARY TABLE")
    (program := tmp_path / "example.py").write_text(text)
    for _ in range(3):
        running = [run(program) for _ in range(3)]
        printed = [await asyncio.to_thread(process.communicate) for process in running]
        assert [(process.returncode, warned) for process, (_, warned) in zip(running, printed, strict=True)] == [
            (0, "")
        ] * len(running)
        assert all(said.startswith("the order falls through\n") for said, _ in printed)


@pytest.mark.slow
async def test_an_app_closed_at_any_moment_after_an_enqueue_warns_of_nothing(
    fresh_postgres_url: str, tmp_path: Path
) -> None:
    (program := tmp_path / "program.py").write_text(CLOSED_AT_ANY_MOMENT)
    process = run(program, fresh_postgres_url)
    _, warned = await asyncio.to_thread(process.communicate)
    assert (process.returncode, warned) == (0, "")
    connection = await asyncpg.connect(fresh_postgres_url)
    assert await connection.fetchval("SELECT count(*) FROM holdfast_jobs") == 11
    await connection.close()


async def test_closing_an_app_sends_the_wake_ups_that_were_still_to_come(fresh_postgres_url: str) -> None:
    app = App(database_url=fresh_postgres_url)

    @app.job(queue="parcels")
    async def ship(order: int) -> None: ...

    heard: list[str] = []
    listener = await asyncpg.connect(fresh_postgres_url)
    await listener.add_listener(CHANNEL, lambda *news: heard.append(str(news[-1])))
    connection = await asyncpg.connect(fresh_postgres_url)
    async with app, connection.transaction():
        await ship.options(connection=connection).enqueue(order=1)
    await listener.fetchval("SELECT 1")  # what was sent before has arrived with the answer
    assert '["parcels"]' in heard
    await connection.close()
    await listener.close()
