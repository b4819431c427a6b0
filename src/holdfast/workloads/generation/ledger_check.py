"""Proves the ledger: each entry follows from the one before it, accounts are what their entries say, and what was
reserved for an ended job is committed, released or forfeited.

Jobs may move meanwhile: entries that are written later than an account was read are left out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.extend import Tx
from holdfast.workloads.generation.included import ext
from holdfast.workloads.generation.ledger import KINDS, EntryKind

PAGE = 1000

Read = Callable[[Callable[[Tx], Awaitable[Any]]], Awaitable[Any]]


@dataclass
class LedgerTotals:
    accounts: int = 0
    entries: int = 0
    by_account: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> int:
        if name not in ("issued", "spent", "forfeited", "available", "reserved"):
            raise AttributeError(name)
        amount = self.by_account.get(name, 0)
        return -amount if name == "issued" else amount

    @property
    def sum(self) -> int:
        """Of all accounts: 0, because each entry takes from one what it gives to another."""
        return sum(self.by_account.values())

    def move(self, debit: str, credit: str, amount: int) -> None:
        self.by_account[debit] = self.by_account.get(debit, 0) - amount
        self.by_account[credit] = self.by_account.get(credit, 0) + amount


async def check_ledger(read: Read) -> LedgerTotals:
    totals, last = LedgerTotals(), ("", "")
    while accounts := await _all(read, ext.q.accounts_after, tenant=last[0], user_id=last[1], limit=PAGE):
        for account in accounts:
            last = (account["tenant"], account["user_id"])
            totals.accounts += 1
            totals.faults += [_of(account, fault) for fault in await _check(read, totals, account)]
    for row in await _all(read, ext.q.without_account, limit=PAGE):
        totals.faults.append(_of(row, "there are entries, and no account"))
    if totals.sum:
        totals.faults.append(f"the accounts together have {totals.sum}, not 0")
    return totals


def _of(row: Any, fault: str) -> str:
    return f"{row['user_id']!r} of tenant {row['tenant']!r}: {fault}"


async def _all(read: Read, query: Any, **asked: Any) -> list[Any]:
    found: list[Any] = await read(lambda tx: tx.all(query, **asked))
    return found


async def _check(read: Read, totals: LedgerTotals, account: Any) -> list[str]:
    walk, whose = _Walk(totals), {"tenant": account["tenant"], "user_id": account["user_id"]}
    while walk.seq < account["seq"]:
        rows = await _all(read, ext.q.entries_after, after=walk.seq, **whose, limit=PAGE)
        rows = [row for row in rows if row["seq"] <= account["seq"]]
        if not rows:
            break
        for row in rows:
            walk.follow(row)
    faults = walk.faults
    if (account["seq"], account["balance"], account["reserved"]) != (walk.seq, walk.balance, walk.reserved):
        faults.append("the account is not what its entries say")
    if (account["newest"] or 0) > account["seq"]:
        faults.append(f"the account ends at entry {account['seq']}, and there is an entry {account['newest']}")
    jobs = sorted(walk.unsettled)
    for first in range(0, len(jobs), PAGE):
        for row in await _all(read, ext.q.unsettled, ids=jobs[first : first + PAGE]):
            faults.append(f"job {row['job_id']} has ended and still has reserved credits")
    for row in await _all(read, ext.q.unreserved, **whose, limit=PAGE):
        faults.append(f"job {row['job_id']} has not ended, and other credits are reserved than it needs")
    return faults


class _Walk:
    """From the first entry of a user to the last one."""

    def __init__(self, totals: LedgerTotals) -> None:
        self._totals = totals
        self.seq = self.balance = self.reserved = 0
        self.unsettled: dict[str, int] = {}  # what is reserved, by job
        self.faults: list[str] = []

    def follow(self, row: Any) -> None:
        kind, amount = KINDS.get(row["kind"]), row["amount"]
        if kind is None or (row["debit"], row["credit"]) != (kind.debit, kind.credit) or amount <= 0:
            self.faults.append(f"entry {row['seq']} is none that there can be")
            kind = kind or EntryKind(row["debit"], row["credit"], 0, 0)
        self.seq, self.balance = self.seq + 1, self.balance + kind.balance * amount
        self.reserved += kind.reserved * amount
        if (row["seq"], row["balance"], row["reserved"]) != (self.seq, self.balance, self.reserved):
            self.faults.append(f"entry {row['seq']} does not follow from the one before it")
            self.seq, self.balance, self.reserved = row["seq"], row["balance"], row["reserved"]
        self._totals.move(row["debit"], row["credit"], amount)
        self._totals.entries += 1
        if (job := row["job_id"]) is not None:
            left = self.unsettled.pop(job, 0) + kind.reserved * amount
            if left:
                self.unsettled[job] = left
            if left < 0:
                self.faults.append(f"entry {row['seq']} settles more than was reserved for job {job}")
