"""`holdfast credits` as processes: it shows, grants and lists, and `check` finds what somebody has changed by hand."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import psycopg
import pytest

from holdfast.clock import Clock
from holdfast.store.migrate import migrate, sqlite_path
from holdfast.workloads.generation import ext
from tests.cli.processes import holdfast
from tests.workloads.generation import ledger_engines as on

ENTRY, ACCOUNT, REQUEST = (f"holdfast_generation_{table}" for table in ("entry", "account", "request"))
TRIGGERS = {ENTRY: ("change", "delete"), ACCOUNT: ("change", "delete")}


@pytest.fixture
def url(store_url: str) -> Iterator[str]:
    """A ledger: ann has a running generation for 4 credits, bob one that has ended."""

    async def story() -> None:
        await migrate(store_url, [ext])
        async with on.opened(store_url, Clock()) as engine:
            by = await on.worker(engine)
            await on.finish(engine, by, await on.claimed(engine, by, "bob", count=2), images=1)
            await on.create(engine, "ann", count=4)

    with on.generation_service(store_url, Clock()):
        asyncio.run(story())
        yield store_url


class Credits:
    """The command on that database."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder

    def run(self, *arguments: str) -> CompletedProcess[str]:
        return holdfast("credits", *arguments, folder=self._folder, url=self._url)

    def lines(self, *arguments: str) -> list[str]:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def json(self, *arguments: str) -> dict[str, object]:
        return dict(json.loads("\n".join(self.lines(*arguments, "--json"))))


@pytest.fixture
def credits_of(url: str, tmp_path: Path) -> Credits:
    return Credits(url, tmp_path)


def by_hand(url: str, table: str, statement: str) -> None:
    """As the owner of the database, who can switch the triggers off."""
    if not url.startswith("sqlite"):
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            assert server.execute(statement).rowcount == 1
        return
    with closing(sqlite3.connect(sqlite_path(url))) as file, file:
        for name in TRIGGERS.get(table, ()):
            file.execute(f"DROP TRIGGER {table}_{name}")
        assert file.execute(statement).rowcount == 1


def test_it_shows_what_a_user_has(credits_of: Credits) -> None:
    assert credits_of.json("show", "ann") == {"user": "ann", "balance": 100, "reserved": 4, "available": 96}
    assert credits_of.lines("show", "bob") == ["bob has 99 credits: 99 available, 0 reserved"]
    new = {"user": "nobody-yet", "balance": 100, "reserved": 0, "available": 100, "new": True}
    assert credits_of.json("show", "nobody-yet") == new
    [line] = credits_of.lines("show", "nobody-yet")
    assert line == "nobody-yet has 100 credits: 100 available, 0 reserved (new: has not used the service yet)"
    assert credits_of.json("show", "ann", "--tenant", "acme")["reserved"] == 0


def test_it_grants_and_lists_and_audits(url: str, credits_of: Credits) -> None:
    granted = credits_of.json("grant", "bob", "50", "--reason", "a refund")
    assert granted["balance"] == 149
    assert credits_of.lines("grant", "bob", "1", "--reason", "more") == ["granted 1 credit to bob, who has 150 now"]
    listed = credits_of.json("statement", "bob")["entries"]
    assert isinstance(listed, list)
    assert [(entry["kind"], entry["amount"], entry["reason"]) for entry in listed] == [
        ("grant", 1, "more"),
        ("grant", 50, "a refund"),
        ("release", 1, None),
        ("commit", 1, None),
        ("reserve", 2, None),
        ("grant", 100, "starting credits"),
    ]
    assert granted["entryId"] == listed[1]["entryId"]
    [newest] = credits_of.lines("statement", "bob", "--limit", "1")
    assert newest.split("\t")[1:] == ["grant", "1", "more"]

    async def audited() -> list[tuple[str, str | None]]:
        async with on.opened(url, Clock()) as engine:
            return [(line.action, line.subject) for line in (await engine.audit.page()).lines]

    assert asyncio.run(audited()).count(("CREDITS_GRANTED", "bob")) == 2


def test_a_grant_says_that_the_user_is_new_and_names_another_tenant(credits_of: Credits) -> None:
    to_new = ("grant", "bbo", "50", "--reason", "a refund")
    first = "granted 50 credits to bbo, who has 150 now (new: has not used the service yet)"
    assert credits_of.lines(*to_new) == [first]
    assert credits_of.lines(*to_new) == ["granted 50 credits to bbo, who has 200 now"]
    elsewhere = credits_of.json("grant", "bob", "5", "--reason", "x", "--tenant", "acme")
    assert (elsewhere["balance"], elsewhere["new"]) == (105, True)
    [line] = credits_of.lines("grant", "bob", "5", "--reason", "x", "--tenant", "acme")
    assert line == "granted 5 credits to bob of tenant acme, who has 110 now"
    [line] = credits_of.lines("show", "bob", "--tenant", "acme")
    assert line == "bob of tenant acme has 110 credits: 110 available, 0 reserved"


def test_the_help_names_each_default_once_and_the_range_of_a_limit(tmp_path: Path) -> None:
    said = " ".join(holdfast("credits", "statement", "--help", folder=tmp_path).stdout.split())
    assert "number of entries, 1 to 500 (20)" in said
    assert "the tenant of the user (default) " in f"{said} "
    assert "(default) (default)" not in said


def test_an_empty_ledger_is_valid_and_asks_whether_it_is_the_right_one(tmp_path: Path) -> None:
    done = holdfast("credits", "check", folder=tmp_path)
    assert done.returncode == 0
    assert "the ledger is valid; 0 accounts, 0 entries" in done.stdout
    assert "the ledger has no accounts yet: is this the right database?" in done.stdout
    assert "is this the right directory?" in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ("grant", "bob", "0", "--reason", "none"),
        ("grant", "bob", "-5", "--reason", "less"),
        ("grant", "bob", "1.5", "--reason", "half"),
        ("grant", "bob", "5"),
        ("statement", "bob", "--limit", "0"),
    ],
)
def test_it_refuses_what_cannot_be_meant(credits_of: Credits, arguments: tuple[str, ...]) -> None:
    assert credits_of.run(*arguments).returncode == 2
    assert credits_of.json("show", "bob")["balance"] == 99


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("grant", "", "5", "--reason", "none"), "user is empty"),
        (("grant", "x" * 201, "5", "--reason", "none"), "user has 201 characters; at most 200"),
        (("grant", "bob", "5", "--reason", ""), "reason is empty"),
        (("grant", "bob", "5", "--reason", "x" * 501), "reason has 501 characters; at most 500"),
        (("grant", "bob", "5", "--reason", "\udcff"), "reason has characters that cannot be stored"),
        (("grant", "b\udcff", "5", "--reason", "none"), "user has characters that cannot be stored"),
        (("grant", "bob", "5", "--reason", "none", "--tenant", ""), "tenant is empty"),
        (("show", ""), "user is empty"),
        (("show", "b\udcff"), "user has characters that cannot be stored"),
        (("statement", "b\udcff"), "user has characters that cannot be stored"),
        (("statement", "x" * 201), "user has 201 characters"),
    ],
    ids=lambda given: given[:40].encode("ascii", "replace").decode() if isinstance(given, str) else given[0],
)
def test_it_refuses_what_cannot_be_stored(credits_of: Credits, arguments: tuple[str, ...], message: str) -> None:
    done = credits_of.run(*arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert credits_of.json("show", "bob")["balance"] == 99


def test_it_proves_a_ledger(credits_of: Credits) -> None:
    assert credits_of.json("check") == {
        "valid": True,
        "faults": [],
        "accounts": 2,
        "entries": 6,
        "issued": 200,
        "spent": 1,
        "forfeited": 0,
        "available": 195,
        "reserved": 4,
        "sum": 0,
    }
    done = credits_of.run("check")
    assert done.returncode == 0
    assert "the ledger is valid; 2 accounts, 6 entries" in done.stdout + done.stderr


WRONG = {
    "amount": (ENTRY, f"UPDATE {ENTRY} SET amount = 101 WHERE user_id = 'ann' AND seq = 1", "entry 1 does not follow"),
    "balance": (ACCOUNT, f"UPDATE {ACCOUNT} SET balance = 1000 WHERE user_id = 'ann'", "the account is not what its"),
    "reserved": (ACCOUNT, f"UPDATE {ACCOUNT} SET reserved = 0 WHERE user_id = 'ann'", "the account is not what its"),
    "entry gone": (ENTRY, f"DELETE FROM {ENTRY} WHERE user_id = 'ann' AND seq = 1", "entry 2 does not follow"),
    "last entry gone": (ENTRY, f"DELETE FROM {ENTRY} WHERE user_id = 'ann' AND seq = 2", "the account is not what its"),
    "set back": (
        ACCOUNT,
        f"UPDATE {ACCOUNT} SET seq = 1, reserved = 0 WHERE user_id = 'ann'",
        "the account ends at entry 1, and there is an entry 2",
    ),
    "account gone": (ACCOUNT, f"DELETE FROM {ACCOUNT} WHERE user_id = 'ann'", "there are entries, and no account"),
    "ended without a settlement": (
        REQUEST,
        f"UPDATE {REQUEST} SET finished_at = created_at WHERE user_id = 'ann'",
        "has ended and still has reserved credits",
    ),
    "another price": (
        REQUEST,
        f"UPDATE {REQUEST} SET credits = 3 WHERE user_id = 'ann'",
        "has not ended, and other credits are reserved than it needs",
    ),
    "other user": (ENTRY, f"UPDATE {ENTRY} SET user_id = 'eve' WHERE user_id = 'ann' AND seq = 2", "'eve' of tenant"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wrong", WRONG)
def test_it_names_who_and_what_is_wrong(url: str, credits_of: Credits, wrong: str) -> None:
    table, statement, told = WRONG[wrong]
    by_hand(url, table, statement)
    done = credits_of.run("check", "--json")
    assert done.returncode == 1, done.stdout
    found = json.loads(done.stdout)
    assert found["valid"] is False
    assert any(told in fault for fault in found["faults"]), found
    assert all(re.match(r"'(ann|eve)' of tenant 'default': ", fault) for fault in found["faults"])


def test_it_says_so_in_plain_text(url: str, credits_of: Credits) -> None:
    table, statement, told = WRONG["balance"]
    by_hand(url, table, statement)
    done = credits_of.run("check")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "the ledger is NOT valid: 1 fault" in said
    assert f"- 'ann' of tenant 'default': {told}" in said
