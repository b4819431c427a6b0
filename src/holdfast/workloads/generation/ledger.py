"""The credits of users: entries in the ledger, and what the account of a user has.

An entry is written in the transaction of the transition that causes it. The database checks that it follows from the
one before it, and books it in the account, so that no other statement can change what a user has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.errors import InvalidField, KeyReused
from holdfast.extend import Tx
from holdfast.workloads.generation import extension
from holdfast.workloads.generation.extension import ext

CREDITS_MAX = 10**15  # of a user

User = tuple[str, str]  # tenant and name


class EntryKind(NamedTuple):
    """The accounts that an entry debits and credits, and how it changes what the user has."""

    debit: str
    credit: str
    balance: int
    reserved: int


KINDS = {
    "grant": EntryKind("issued", "available", 1, 0),
    "reserve": EntryKind("available", "reserved", 0, 1),
    "commit": EntryKind("reserved", "spent", -1, -1),
    "release": EntryKind("reserved", "available", 0, -1),
    "forfeit": EntryKind("reserved", "forfeited", -1, -1),
}


class Entry(NamedTuple):
    user: User
    kind: str
    amount: int
    job_id: str | None = None
    reason: str | None = None


class Credits(NamedTuple):
    balance: int
    reserved: int

    @property
    def available(self) -> int:
        return self.balance - self.reserved


def in_credits(amount: int) -> str:
    """Such as "1 credit"."""
    return f"{amount} credit{'' if amount == 1 else 's'}"


async def credits_of(tx: Tx, user: User) -> Credits:
    """A new user has the credits that each starts with, which the ledger does not have yet."""
    row = await tx.one(ext.q.account, tenant=user[0], user_id=user[1])
    return Credits(ext.settings.starting_credits, 0) if row is None else Credits(row["balance"], row["reserved"])


async def open_account(tx: Tx, user: User) -> None:
    """With the credits that each user starts with."""
    opened = await tx.one(ext.q.open_account, tenant=user[0], user_id=user[1])
    if opened is not None and ext.settings.starting_credits:
        await add(tx, [Entry(user, "grant", ext.settings.starting_credits, reason="starting credits")])


async def lock(tx: Tx, users: Iterable[User]) -> dict[User, Any]:
    """The accounts of these users, which are opened if need be. Other transactions cannot change them until the end of
    this one."""
    wanted = sorted(set(users))
    found = await _locked(tx, wanted)
    if missing := [user for user in wanted if user not in found]:
        for user in missing:
            await open_account(tx, user)
        found = await _locked(tx, wanted)
    return found


async def _locked(tx: Tx, users: Sequence[User]) -> dict[User, Any]:
    rows = await tx.all(ext.q.lock_accounts, wanted=users)
    return {(row["tenant"], row["user_id"]): row for row in rows}


async def add(tx: Tx, entries: Sequence[Entry]) -> Any:
    """Write entries of locked accounts. Returns the row of the first."""
    places, balances, reserved = Counter[User](), Counter[User](), Counter[User]()
    rows = []
    for entry in entries:
        user, kind = entry.user, KINDS[entry.kind]
        places[user] += 1
        balances[user] += kind.balance * entry.amount
        reserved[user] += kind.reserved * entry.amount
        accounts = (kind.debit, kind.credit, balances[user], reserved[user])
        rows.append((*user, places[user], entry.kind, entry.amount, *accounts, entry.job_id, entry.reason))
    written = await tx.all(ext.q.add_entries, made=rows)
    tx.after_commit(lambda: _count(entries))
    return written[0]


def _count(entries: Sequence[Entry]) -> None:
    for entry in entries:
        extension.credits_moved.add(entry.amount, entry.kind)


async def reserved_for(tx: Tx, job_id: str) -> int:
    row = await tx.one(ext.q.reservation, job_id=job_id)
    return 0 if row is None else int(row["credits"])


@dataclass(frozen=True)
class Grant:
    seq: int
    balance: int
    existed: bool = field(compare=False)  # a repeat, which has granted nothing


async def grant(tx: Tx, user: User, amount: int, reason: str, key: str | None = None) -> Grant:
    """Credits for a user. A repeat with the same key grants nothing."""
    account = (await lock(tx, [user]))[user]
    granted = None if key is None else await tx.one(ext.q.entry_of_grant, tenant=user[0], grant_key=key)
    existed = granted is not None
    if not existed:
        if account["balance"] + amount > CREDITS_MAX:
            raise InvalidField(f"a user may have at most {CREDITS_MAX} credits", field="amount")
        owner = {"tenant": user[0], "user_id": user[1]}
        granted = await tx.one(ext.q.add_grant, **owner, amount=amount, reason=reason, grant_key=key)
        tx.after_commit(lambda: extension.credits_moved.add(amount, "grant"))
    if granted is None or (granted["user_id"], granted["amount"]) != (user[1], amount):
        raise KeyReused("this Idempotency-Key was used for another grant; use a new one")
    return Grant(granted["seq"], granted["balance"], existed)
