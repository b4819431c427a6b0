"""The ledger of credits: its entries, and what the database refuses whoever writes.

C-40, H13, R004-12, S11.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import InvalidField, KeyReused, PaymentRequired, TooMany
from holdfast.store.migrate import migrate, sqlite_path
from holdfast.workloads.generation import ext
from holdfast.workloads.generation.ledger import CREDITS_MAX
from holdfast.workloads.generation.ledger_check import check_ledger
from tests.workloads.generation import ledger_engines as on
from tests.workloads.generation.ledger_engines import claimed, create, entries, finish, generation, has, opened

REFUSED = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)
START = 100


@pytest.fixture
async def bank(store_url: str, clock: MovableClock) -> AsyncIterator[Engine]:
    """An engine with the generation service."""
    await migrate(store_url, [ext])
    with on.generation_service(store_url, clock):
        async with opened(store_url, clock) as engine:
            yield engine


@pytest.fixture
async def by(bank: Engine) -> str:
    """A worker."""
    return await on.worker(bank)


async def raw(url: str, statement: str) -> None:
    """As an operator types it."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url))) as file, file:
            file.execute(statement)
        return
    server = await asyncpg.connect(url)
    try:
        await server.execute(statement)
    finally:
        await server.close()


# -- each kind of entry ------------------------------------------------------------------------------------------


async def test_a_generation_reserves_and_its_success_commits_what_was_made(bank: Engine, by: str) -> None:
    """R004-12: 3 of 4: commit 3, release 1."""
    lease = await claimed(bank, by, count=4)
    assert (await has(bank), await entries(bank)) == ((START, 4), [("reserve", 4)])
    await finish(bank, by, lease, images=3)
    assert await entries(bank) == [("reserve", 4), ("commit", 3), ("release", 1)]
    assert await has(bank) == (START - 3, 0)
    totals = await on.check(bank)
    assert (totals.issued, totals.spent, totals.forfeited) == (START, 3, 0)
    assert (totals.available, totals.reserved) == (START - 3, 0)


@pytest.mark.parametrize("images", [0, 1, 2])
async def test_a_success_charges_for_its_images(bank: Engine, by: str, images: int) -> None:
    await finish(bank, by, await claimed(bank, by, count=2), images)
    committed = [("commit", images)] if images else []
    released = [("release", 2 - images)] if images < 2 else []
    assert await entries(bank) == [("reserve", 2), *committed, *released]
    assert await has(bank) == (START - images, 0)


async def test_a_rejection_forfeits_everything(bank: Engine, by: str) -> None:
    lease = await claimed(bank, by, count=3)
    await bank.reject(by, lease.id, lease.token, "provider_rejected")
    assert await entries(bank) == [("reserve", 3), ("forfeit", 3)]
    assert await has(bank) == (START - 3, 0)
    assert (await on.check(bank)).forfeited == 3


async def test_a_dead_letter_releases_everything(bank: Engine, by: str) -> None:
    lease = await claimed(bank, by, count=3)
    await bank.fail(by, lease.id, lease.token, "provider_failed", permanent=True)
    assert await entries(bank) == [("reserve", 3), ("release", 3)]
    assert await has(bank) == (START, 0)


async def test_a_retry_reserves_nothing_more(bank: Engine, by: str, clock: MovableClock) -> None:
    """R004-14: the same credits, until the job ends."""
    lease = await claimed(bank, by, count=2)
    await bank.fail(by, lease.id, lease.token, "provider_unavailable")
    clock.advance(3600)
    [again] = await bank.claim(by)
    assert (again.id, await entries(bank)) == (lease.id, [("reserve", 2)])
    await finish(bank, by, again, images=2)
    assert await entries(bank) == [("reserve", 2), ("commit", 2)]


async def test_a_cost_applies_to_each_image(store_url: str, bank: Engine, by: str, clock: MovableClock) -> None:
    """The reservation of a job stays what it was when the cost changes while it runs."""
    with on.generation_service(store_url, clock, cost=7):
        lease = await claimed(bank, by, count=4)
    with on.generation_service(store_url, clock, cost=1000):
        await finish(bank, by, lease, images=1)
    assert await entries(bank) == [("reserve", 28), ("commit", 7), ("release", 21)]


async def test_a_service_without_a_price_has_no_entries(
    store_url: str, bank: Engine, by: str, clock: MovableClock
) -> None:
    with on.generation_service(store_url, clock, cost=0, starting_credits=0):
        await finish(bank, by, await claimed(bank, by, count=4), images=4)
        assert (await has(bank), await entries(bank)) == ((0, 0), [])
        await on.check(bank)


async def test_a_refused_request_leaves_no_row(store_url: str, bank: Engine, clock: MovableClock) -> None:
    """R004-9: 402 and 429 leave neither an account nor an entry, and one audit entry each."""
    for settings, error in (({"starting_credits": 3}, PaymentRequired), ({"quota_per_day": 3}, TooMany)):
        with on.generation_service(store_url, clock, **settings), pytest.raises(error):
            await create(bank, count=4)
    books = await on.read_books(bank)
    assert (books.jobs, books.entries, books.accounts, books.requests) == ([], [], [], [])
    found = [line for line in (await bank.audit.page()).lines if line.actor == "extension generation"]
    assert [(line.action, line.subject) for line in found] == [
        ("QUOTA_EXCEEDED", "ann"),
        ("INSUFFICIENT_CREDITS", "ann"),
    ]


async def test_a_repeated_request_reserves_once(bank: Engine, clock: MovableClock) -> None:
    """R004-28: also across the edge of a minute, and in one batch."""
    first = await create(bank, prompt="a fox")
    clock.advance(59)
    assert (await create(bank, prompt="a fox")).id == first.id
    twice = await bank.create_many([generation(prompt="a hare"), generation(prompt="a hare")])
    assert twice[0].id == twice[1].id
    assert await entries(bank) == [("reserve", 1), ("reserve", 1)]
    await on.check(bank)


async def test_a_batch_is_reserved_as_a_whole_or_not_at_all(bank: Engine) -> None:
    await bank.create_many([generation(count=4) for _ in range(20)])
    with pytest.raises(PaymentRequired):
        await bank.create_many([generation(count=4) for _ in range(6)])
    assert await has(bank) == (START, 80)
    await bank.create_many([generation(count=4) for _ in range(5)])
    assert await has(bank) == (START, START)
    await on.check(bank)


async def test_a_redrive_reserves_again_and_the_request_counts_both(bank: Engine, by: str) -> None:
    lease = await claimed(bank, by, count=2)
    await bank.reject(by, lease.id, lease.token, "image_rejected")
    again = await bank.redrive(lease.id)
    assert await has(bank) == (START - 2, 2)
    [running] = await bank.claim(by)
    await finish(bank, by, running, images=2)
    assert await on.entries_of(bank, again.id) == {"reserve": 2, "commit": 2}
    [request] = await on.rows(bank, on.REQUESTS)
    assert (request["id"], request["job_id"], request["charged"]) == (lease.id, again.id, 4)
    assert await has(bank) == (START - 4, 0)
    await on.check_books(bank, "after the redrive", cost=1)


async def test_a_redrive_for_another_user_charges_that_user(bank: Engine, by: str) -> None:
    """An operator may change the payload. The request of the first user stays as it is."""
    lease = await claimed(bank, by)
    await bank.fail(by, lease.id, lease.token, "E", permanent=True)
    again = await bank.redrive(lease.id, payload={**lease.payload, "user": "bob"})
    [running] = await bank.claim(by)
    await finish(bank, by, running, images=1)
    assert (await has(bank, "ann"), await has(bank, "bob")) == ((START, 0), (START - 1, 0))
    charged = {row["id"]: row["charged"] for row in await on.rows(bank, on.REQUESTS)}
    assert charged == {lease.id: 0, again.id: 1}


# -- starting credits and grants ---------------------------------------------------------------------------------


async def test_starting_credits_are_granted_once(store_url: str, bank: Engine, clock: MovableClock) -> None:
    async with opened(store_url, clock) as second:
        await asyncio.gather(
            *(create(engine) for engine in (bank, second) * 10), *(on.grant(second, "ann", 1) for _ in range(5))
        )
    granted = [row["amount"] for row in await on.rows(bank, on.ENTRIES) if row["reason"] == "starting credits"]
    assert (granted, await has(bank)) == ([START], (START + 5, 20))
    await on.check(bank)


async def test_a_new_user_has_the_starting_credits_before_the_first_entry(bank: Engine) -> None:
    assert (await has(bank, "new"), await on.rows(bank, on.ACCOUNTS)) == ((START, 0), [])


async def test_a_grant_with_a_key_is_granted_once(bank: Engine) -> None:
    first = await on.grant(bank, "ann", 50, key="k")
    again = await asyncio.gather(*(on.grant(bank, "ann", 50, key="k") for _ in range(10)))
    assert ({*again}, first.balance, await has(bank)) == ({first}, START + 50, (START + 50, 0))
    for user, amount in (("bob", 50), ("ann", 51)):
        with pytest.raises(KeyReused):
            await on.grant(bank, user, amount, key="k")
    assert await entries(bank) == [("grant", 50)]


async def test_one_key_for_grants_to_several_users_at_once_grants_one_of_them(
    store_url: str, bank: Engine, clock: MovableClock
) -> None:
    users = [f"u{n}" for n in range(8)]
    async with opened(store_url, clock) as second:
        pairs = [(engine, user) for user, engine in zip(users, (bank, second) * 4, strict=True)]
        answers = await asyncio.gather(
            *(on.grant(engine, user, 5, key="k") for engine, user in pairs), return_exceptions=True
        )
    granted = [row["user_id"] for row in await on.rows(bank, on.ENTRIES) if row["reason"] == "a gift"]
    assert len(granted) == 1
    assert [isinstance(answer, Exception) for answer in answers].count(False) == 1
    assert {type(answer) for answer in answers if isinstance(answer, Exception)} == {KeyReused}
    await on.check(bank)


async def test_a_user_has_at_most_so_many_credits(bank: Engine) -> None:
    await on.grant(bank, "ann", CREDITS_MAX - START)
    with pytest.raises(InvalidField):
        await on.grant(bank, "ann", 1)
    assert await has(bank) == (CREDITS_MAX, 0)


async def test_users_of_the_same_name_in_two_tenants_have_an_account_each(bank: Engine) -> None:
    await create(bank, count=2)
    await bank.create(generation(tenant="acme"))
    accounts = {row["tenant"]: row["reserved"] for row in await on.rows(bank, on.ACCOUNTS)}
    assert accounts == {"default": 2, "acme": 1}
    await on.check(bank)


# -- what the database refuses -----------------------------------------------------------------------------------

ENTRY = "holdfast_generation_entry"
ACCOUNT = "holdfast_generation_account"


def insert(url: str, **entry: Any) -> str:
    """By default one that follows: the account has seq 4, balance 100, and reserved 4 for `open`."""
    at = "1" if url.startswith("sqlite") else "now()"
    values = {
        "tenant": "default",
        "user_id": "ann",
        "seq": 5,
        "kind": "grant",
        "amount": 5,
        "debit": "issued",
        "credit": "available",
        "balance": 105,
        "reserved": 4,
        "job_id": None,
        "reason": None,
        "grant_key": None,
        **entry,
    }
    listed = ", ".join("NULL" if value is None else repr(value) for value in values.values())
    return f"INTO {ENTRY} ({', '.join(values)}, at) VALUES ({listed}, {at})"


RESERVE = {"kind": "reserve", "debit": "available", "credit": "reserved", "balance": 100}
COMMIT = {"kind": "commit", "debit": "reserved", "credit": "spent"}
RELEASE = {"kind": "release", "debit": "reserved", "credit": "available", "balance": 100}
FORFEIT = {"kind": "forfeit", "debit": "reserved", "credit": "forfeited"}
WRONG_ENTRIES: dict[str, dict[str, Any]] = {
    "seq again": {"seq": 4},
    "seq too far": {"seq": 6},
    "balance too high": {"balance": 106},
    "balance as before": {"balance": 100},
    "reserved without a reservation": {"reserved": 5},
    "amount zero": {"amount": 0, "balance": 100},
    "amount negative": {"amount": -5, "balance": 95},
    "unknown kind": {"kind": "gift"},
    "wrong debit": {"debit": "reserved"},
    "wrong credit": {"credit": "spent"},
    "grant for a job": {"job_id": "open"},
    "no account": {"user_id": "zoe", "seq": 1, "balance": 5, "reserved": 0},
    "grant key again": {"grant_key": "k"},
    "reserve without a job": {**RESERVE, "reserved": 9},
    "reserve twice": {**RESERVE, "reserved": 9, "job_id": "open"},
    "reserve more than there is": {**RESERVE, "amount": 97, "reserved": 101, "job_id": "new"},
    "commit of another job": {**COMMIT, "amount": 1, "balance": 99, "reserved": 3, "job_id": "new"},
    "commit too much": {**COMMIT, "balance": 95, "reserved": -1, "job_id": "open"},
    "release too much": {**RELEASE, "reserved": -1, "job_id": "open"},
    "forfeit too much": {**FORFEIT, "balance": 95, "reserved": -1, "job_id": "open"},
    "release of a settled job": {**RELEASE, "amount": 1, "reserved": 3, "job_id": "done"},
    "commit of a settled job": {**COMMIT, "amount": 1, "balance": 99, "reserved": 3, "job_id": "done"},
    "release that pays back": {**RELEASE, "amount": 1, "balance": 101, "reserved": 3, "job_id": "open"},
    "forfeit that pays back": {**FORFEIT, "amount": 1, "balance": 100, "reserved": 3, "job_id": "open"},
}


@pytest.fixture
async def kept(store_url: str, bank: Engine, by: str) -> AsyncIterator[dict[str, str]]:
    """Entries of each kind, which no statement of a test may change. Jobs by what became of them."""
    await on.grant(bank, "bob", 5, key="k")
    done = await claimed(bank, by)
    await bank.fail(by, done.id, done.token, "E", permanent=True)
    names = {"done": done.id, "open": (await create(bank, count=4)).id, "new": "no-such-job"}
    before = await on.read_books(bank)
    yield names
    after = await on.read_books(bank)
    assert [tuple(row) for row in after.entries] == [tuple(row) for row in before.entries]
    assert [tuple(row) for row in after.accounts] == [tuple(row) for row in before.accounts]
    await on.check(bank)


@pytest.mark.parametrize("wrong", WRONG_ENTRIES)
async def test_the_database_refuses_an_entry_that_does_not_follow(
    store_url: str, kept: dict[str, str], wrong: str
) -> None:
    entry = WRONG_ENTRIES[wrong]
    entry = {**entry, "job_id": kept.get(entry.get("job_id", ""))}
    ways = ("INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE") if store_url.startswith("sqlite") else ("INSERT",)
    for way in ways:
        if way == "INSERT OR IGNORE":  # may be ignored: then nothing has changed either
            with closing(sqlite3.connect(sqlite_path(store_url))) as connection, connection:
                try:
                    assert connection.execute(f"{way} {insert(store_url, **entry)}").rowcount == 0
                except sqlite3.IntegrityError:
                    continue
        else:
            with pytest.raises(REFUSED):
                await raw(store_url, f"{way} {insert(store_url, **entry)}")


REFUSED_STATEMENTS = {
    "entry amount": f"UPDATE {ENTRY} SET amount = amount + 1 WHERE user_id = 'ann'",
    "entry reason": f"UPDATE {ENTRY} SET reason = 'another' WHERE user_id = 'ann'",
    "entry without a change": f"UPDATE {ENTRY} SET amount = amount WHERE user_id = 'ann'",
    "entry deleted": f"DELETE FROM {ENTRY} WHERE user_id = 'ann'",
    "newest entry deleted": f"DELETE FROM {ENTRY} WHERE user_id = 'ann' AND seq = 4",
    "balance": f"UPDATE {ACCOUNT} SET balance = balance + 5 WHERE user_id = 'ann'",
    "negative balance": f"UPDATE {ACCOUNT} SET balance = -1 WHERE user_id = 'ann'",
    "reserved": f"UPDATE {ACCOUNT} SET reserved = 0 WHERE user_id = 'ann'",
    "seq": f"UPDATE {ACCOUNT} SET seq = seq + 1 WHERE user_id = 'ann'",
    "back to an earlier entry": f"UPDATE {ACCOUNT} SET seq = 1, balance = 100, reserved = 0 WHERE user_id = 'ann'",
    "renamed": f"UPDATE {ACCOUNT} SET user_id = 'zoe' WHERE user_id = 'ann'",
    "account deleted": f"DELETE FROM {ACCOUNT} WHERE user_id = 'ann'",
    "account with credits": f"INSERT INTO {ACCOUNT} (tenant, user_id, balance) VALUES ('default', 'zoe', 5)",
    "account with a seq": f"INSERT INTO {ACCOUNT} (tenant, user_id, seq) VALUES ('default', 'zoe', 1)",
    "account again": f"INSERT INTO {ACCOUNT} (tenant, user_id) VALUES ('default', 'ann')",
}
OF_STORE = {
    "postgres": {
        "entries truncated": f"TRUNCATE {ENTRY}",
        "accounts truncated": f"TRUNCATE {ACCOUNT}",
        "everything truncated": f"TRUNCATE {ENTRY}, {ACCOUNT} CASCADE",
        "entry changed by a conflict": f"INSERT INTO {ENTRY} SELECT * FROM {ENTRY} WHERE user_id = 'ann'"
        " ON CONFLICT (tenant, user_id, seq) DO UPDATE SET amount = 1",
    },
    "sqlite": {
        "account replaced": f"INSERT OR REPLACE INTO {ACCOUNT} (tenant, user_id) VALUES ('default', 'ann')",
        "account replaced by one of the same credits": f"UPDATE OR REPLACE {ACCOUNT} SET user_id = 'eve'"
        " WHERE user_id = 'dan'",
        "entry replaced": f"UPDATE OR REPLACE {ENTRY} SET seq = 1 WHERE user_id = 'ann' AND seq = 2",
        "all entries deleted": f"DELETE FROM {ENTRY}",
        "all accounts deleted": f"DELETE FROM {ACCOUNT}",
    },
}


@pytest.mark.parametrize("what", REFUSED_STATEMENTS)
async def test_the_database_refuses_a_statement_that_changes_the_ledger(
    store_url: str, kept: dict[str, str], what: str
) -> None:
    with pytest.raises(REFUSED):
        await raw(store_url, REFUSED_STATEMENTS[what])


async def test_the_database_refuses_statements_of_its_own_dialect(bank: Engine, store_url: str, by: str) -> None:
    """Among them a rename to another account with the same entries."""
    for user in ("ann", "dan", "eve"):
        await finish(bank, by, await claimed(bank, by, user), images=1)
    before = await on.read_books(bank)
    for statement in OF_STORE[bank.store.dialect].values():
        with pytest.raises(REFUSED):
            await raw(store_url, statement)
    after = await on.read_books(bank)
    assert [[tuple(row) for row in each] for each in after] == [[tuple(row) for row in each] for each in before]


async def test_an_entry_that_follows_is_booked(bank: Engine, store_url: str, by: str) -> None:
    """Those that are refused differ from such a one only in what is wrong with them."""
    await create(bank)
    [job] = [job.id for job in (await bank.reads.page()).jobs]
    for number, amount in ((3, 5), (4, 7)):
        follows = {"seq": number, "amount": amount, "balance": START + 5 + 7 * (number - 3), "reserved": 1}
        await raw(store_url, f"INSERT {insert(store_url, **follows)}")
    forfeit = {**FORFEIT, "seq": 5, "amount": 1, "balance": START + 11, "reserved": 0, "job_id": job}
    await raw(store_url, f"INSERT {insert(store_url, **forfeit)}")
    assert await has(bank) == (START + 11, 0)
    [lease] = await bank.claim(by)
    assert (await bank.complete(by, lease.id, lease.token)).state == "succeeded"
    assert await entries(bank) == [("reserve", 1), ("grant", 5), ("grant", 7), ("forfeit", 1)]
    await on.check(bank)


async def test_the_proof_is_right_while_jobs_begin_and_end(bank: Engine, by: str) -> None:
    """Something moves between any two of its reads."""
    leases = [await claimed(bank, by, user, count=2) for user in ("ann", "bob", "cem") for _ in range(3)]
    reads = 0

    async def read(work: Any) -> Any:
        nonlocal reads
        reads += 1
        answer = await bank.store.read(work)
        if leases:
            await finish(bank, by, leases.pop(), images=1)
        await create(bank, "ann")
        return answer

    totals = await check_ledger(read)
    assert (totals.faults, totals.sum) == ([], 0)
    assert reads > len(leases) + 9
