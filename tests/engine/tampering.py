"""A user with full rights on the database who modifies the append-only audit log."""

from holdfast.engine import Engine
from holdfast.store import Row, Tx
from holdfast.store.queries import Query

WEAKER = {
    "postgres": ["ALTER TABLE holdfast_audit DISABLE TRIGGER ALL"],
    "sqlite": ["DROP TRIGGER holdfast_audit_append_only", "DROP TRIGGER holdfast_audit_kept"],
}


async def tamper(engine: Engine, sql: str) -> list[Row]:
    """With the refusals of the database itself switched off first."""

    async def work(tx: Tx) -> list[Row]:
        for statement in WEAKER[engine.store.dialect]:
            await tx.all(Query("weaken", statement))
        return await tx.all(Query("tamper", f"{sql} RETURNING seq"))

    return await engine.store.write(work)
