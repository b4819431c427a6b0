"""A table that is missing: clients are told what to do, and not where the database is."""

from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.server.steps import ADMIN, bearer, client_key, serving


@pytest.mark.postgres
async def test_a_missing_table_does_not_show_the_database_url_to_clients(fresh_postgres_url: str) -> None:
    name = urlsplit(fresh_postgres_url).path[1:]
    async with serving(f"{fresh_postgres_url}?application_name=an-option") as served:
        key = await client_key(served, "a")
        connection = await asyncpg.connect(fresh_postgres_url)
        for table in ("jobs", "keys"):  # a lock on one table at a time: two could deadlock with the server
            await connection.execute(f"ALTER TABLE holdfast_{table} RENAME TO missing_{table}")
        await connection.close()
        operator = await served.http.get("/api/admin/jobs", headers=ADMIN)
        client = await served.http.get("/jobs", headers=bearer(key))
        anybody = await served.http.get("/jobs")
        for answer in (operator, client, anybody):
            assert answer.status_code == 503
            assert "the database has no Holdfast schema" in answer.json()["detail"]
            assert "run `holdfast migrate`" in answer.json()["detail"]
            for hidden in ("postgresql://", "postgres@", "127.0.0.1", "an-option", name):
                assert hidden not in answer.text
