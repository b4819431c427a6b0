"""Hooks that fail in different ways, and jobs to call them for."""

import sys
from dataclasses import replace
from typing import Any

from holdfast.engine import Engine
from holdfast.errors import Refused
from holdfast.model import Job, Lease, NewJob
from holdfast.store import Tx
from holdfast.store.queries import Query
from holdfast.store.sqlite import SqliteTx
from tests.engine.hooking import effect
from tests.engine.steps import ask

BAD = 37


async def raises(_tx: Tx) -> None:
    raise ZeroDivisionError("a mistake in the effect")


async def refuses(_tx: Tx) -> None:
    raise Refused("an effect cannot refuse")


async def fails_in_sql(tx: Tx) -> None:
    await tx.one(Query("broken", "INSERT INTO holdfast_job_types (name) VALUES ('half') RETURNING name"))


async def fails_in_sql_later(tx: Tx) -> None:
    await tx.run(Query("broken", "INSERT INTO holdfast_job_types (name) VALUES ('half') RETURNING name"))


async def takes_too_long(tx: Tx) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS n FROM n"
    await tx.all(Query("slow", endless if isinstance(tx, SqliteTx) else "SELECT pg_sleep(60)"))


async def raises_unencodable_text(_tx: Tx) -> None:
    raise UnicodeError("NUL \x00 and half a character \ud800")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


async def raises_without_message(_tx: Tx) -> None:
    raise UnprintableError


async def exits(_tx: Tx) -> None:
    sys.exit(3)


UNUSUAL_FAILURES = {"text": raises_unencodable_text, "mute": raises_without_message, "exit": exits}


FAILURES = {
    "raises": raises,
    "refuses": refuses,
    "sql": fails_in_sql,
    "sql later": fails_in_sql_later,
    "time": takes_too_long,
}


async def hundred_leases(engine: Engine, worker: str, **job: Any) -> list[Lease]:
    await engine.create_many([NewJob(type="n", payload={"n": n}, **job) for n in range(100)])
    leases = await engine.claim(worker, limit=100)
    assert len(leases) == 100
    return leases


def break_one(engine: Engine, way: str, *verbs: str) -> None:
    engine.ctx.limits = replace(engine.ctx.limits, hook_seconds=0.5)

    @effect(engine, *verbs)
    async def follow(tx: Tx, _verb: str, job: Job) -> None:
        await tx.run(Query("note", "INSERT INTO holdfast_secrets (name, value) VALUES (:id, 'x')"), id=job.id)
        if job.payload["n"] == BAD:
            await (FAILURES | UNUSUAL_FAILURES)[way](tx)


async def states(engine: Engine) -> dict[str, int]:
    rows = await ask(engine, "SELECT state, count(*) AS jobs FROM holdfast_jobs GROUP BY state")
    return {row["state"]: row["jobs"] for row in rows}


def remove_effects(engine: Engine) -> None:
    engine.ctx.hooks._effects.clear()


async def ten_leases(engine: Engine, worker: str, **job: Any) -> list[Lease]:
    await engine.create_many([NewJob(type="n", payload={"n": n}, **job) for n in range(BAD - 5, BAD + 5)])
    return await engine.claim(worker, limit=10)


async def follow_nothing(_tx: Tx, _verb: str, _job: Job) -> None:
    pass
