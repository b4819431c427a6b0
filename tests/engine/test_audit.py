"""The audit log: who did what, in a hash chain that reveals every change."""

import asyncio
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.engine.admin.audit import AuditedAction, record
from holdfast.errors import HoldfastError, Invalid
from holdfast.store import Tx
from tests.engine.steps import ask
from tests.engine.tampering import tamper


async def tell(engine: Engine, *actions: str, **detail: Any) -> None:
    for action in actions:
        told = AuditedAction("alice", action, "a job", detail)
        await engine.store.write(lambda tx, told=told: record(tx, told))  # type: ignore[misc]


async def test_audit_entries_are_numbered_dated_and_chained(engine: Engine) -> None:
    await tell(engine, "queue.pause", "queue.resume", tenant="acme")
    newer, older = (await engine.audit.page()).lines
    assert [(line.seq, line.actor, line.action, line.subject) for line in (older, newer)] == [
        (1, "alice", "queue.pause", "a job"),
        (2, "alice", "queue.resume", "a job"),
    ]
    assert older.detail == {"tenant": "acme"}
    assert older.at == await engine.reads.now()
    assert (older.previous, newer.previous) == ("", older.digest)


async def test_the_audit_is_read_page_by_page_from_the_newest(engine: Engine) -> None:
    await tell(engine, *map(str, range(5)))
    first = await engine.audit.page(limit=2)
    second = await engine.audit.page(before=first.next, limit=2)
    last = await engine.audit.page(before=second.next, limit=2)
    assert [line.action for page in (first, second, last) for line in page.lines] == ["4", "3", "2", "1", "0"]
    assert last.next is None
    with pytest.raises(Invalid):
        await engine.audit.page(limit=501)


async def test_an_unmodified_audit_log_verifies(engine: Engine) -> None:
    empty = await engine.audit.verify()
    assert (empty.wrong, empty.last, empty.digest) == (None, 0, "")
    await tell(engine, "a", "b", "c")
    whole = await engine.audit.verify()
    assert (whole.wrong, whole.last, whole.digest) == (None, 3, (await engine.audit.page()).lines[0].digest)


@pytest.mark.parametrize(
    ("change", "wrong", "why"),
    [
        ("UPDATE holdfast_audit SET actor = 'mallory' WHERE seq = 2", 2, "its content was changed"),
        ("UPDATE holdfast_audit SET action = 'nothing' WHERE seq = 2", 2, "its content was changed"),
        ("UPDATE holdfast_audit SET subject = NULL WHERE seq = 2", 2, "its content was changed"),
        ("UPDATE holdfast_audit SET detail = 'no json' WHERE seq = 2", 2, "its content was changed"),
        (
            "UPDATE holdfast_audit SET at = (SELECT min(at) FROM holdfast_audit) WHERE seq = 2",
            2,
            "its content was changed",
        ),
        ("UPDATE holdfast_audit SET previous = 'x' WHERE seq = 2", 2, "its link to the previous entry is wrong"),
        ("UPDATE holdfast_audit SET digest = 'x' WHERE seq = 2", 2, "its content was changed"),
        ("DELETE FROM holdfast_audit WHERE seq = 2", 3, "an entry before it is missing: 1 is followed by 3"),
        ("DELETE FROM holdfast_audit WHERE seq = 1", 2, "an entry before it is missing: 0 is followed by 2"),
        ("UPDATE holdfast_audit SET seq = 9 WHERE seq = 3", 9, "an entry before it is missing: 2 is followed by 9"),
    ],
)
async def test_verification_names_the_first_tampered_audit_entry(
    engine: Engine, clock: Any, change: str, wrong: int, why: str
) -> None:
    """SEC-43: verification fails and names the entry."""
    for action in ("a", "b", "c"):
        await tell(engine, action)
        clock.advance(1)
    assert await tamper(engine, change)
    found = await engine.audit.verify()
    assert (found.wrong, found.why) == (wrong, why)
    assert found.last == wrong - 1 or "missing" in why
    assert (await engine.audit.page()).lines, "it can still be read"


async def test_an_externally_kept_digest_reveals_a_rewritten_or_truncated_audit_log(
    engine: Engine,
) -> None:
    await tell(engine, "a", "b")
    kept = await engine.audit.verify()
    await tell(engine, "c")
    assert (await engine.audit.verify(seq=kept.last, digest=kept.digest)).wrong is None
    assert (await engine.audit.verify(seq=kept.last, digest="0" * 64)).why == "its digest is not the given one"
    await tamper(engine, "DELETE FROM holdfast_audit WHERE seq > 1")
    assert (await engine.audit.verify()).wrong is None, "a chain does not know how long it was"
    gone = await engine.audit.verify(seq=kept.last, digest=kept.digest)
    assert (gone.wrong, gone.why) == (2, "the entries after 1 are missing")
    with pytest.raises(Invalid, match="together"):
        await engine.audit.verify(seq=1)


async def test_the_database_itself_refuses_to_rewrite_the_audit(engine: Engine) -> None:
    await tell(engine, "a")
    for sql in (
        "UPDATE holdfast_audit SET actor = 'mallory' RETURNING seq",
        "DELETE FROM holdfast_audit RETURNING seq",
    ):
        with pytest.raises(HoldfastError, match="append-only"):
            await ask(engine, sql)
    assert (await engine.audit.verify()).wrong is None


async def test_concurrent_audit_writes_form_one_chain(engine: Engine) -> None:
    """SEC-43: two lines never follow the same one, and none is lost."""
    await asyncio.gather(*(tell(engine, f"{place}") for place in range(30)))
    found = await engine.audit.verify()
    assert (found.wrong, found.last) == (None, 30)
    assert {line.action for line in (await engine.audit.page()).lines} == {f"{place}" for place in range(30)}


async def test_a_failed_action_leaves_no_audit_entry(engine: Engine) -> None:
    async def refuses(tx: Tx) -> None:
        raise Invalid("no")

    async def breaks(tx: Tx) -> None:
        await record(tx, AuditedAction("alice", "a"))
        raise Invalid("no")

    with pytest.raises(Invalid):
        await engine.audit.record(refuses, lambda _: AuditedAction("alice", "a"))
    with pytest.raises(Invalid):
        await engine.store.write(breaks)
    assert (await engine.audit.page()).lines == []
