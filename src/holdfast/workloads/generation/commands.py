"""`holdfast credits`: shows, grants and proves the credits of users."""

from __future__ import annotations

from typing import Any

from holdfast.extend import CommandCall, Report, Tx
from holdfast.workloads.generation import ledger
from holdfast.workloads.generation.included import ext
from holdfast.workloads.generation.ledger import Credits, User
from holdfast.workloads.generation.ledger_check import LedgerTotals, check_ledger
from holdfast.workloads.generation.manifest import DEFAULT_TENANT
from holdfast.workloads.generation.operators import checked_reason, checked_user
from holdfast.workloads.generation.views import entry_id

SHOWN_FAULTS = 20
NEW = " (new: has not used the service yet)"  # or the name is misspelled


async def check(call: CommandCall) -> Report:
    totals = await check_ledger(call.read)
    data = {"valid": not totals.faults, "faults": totals.faults, **_shown(totals)}
    lines = [f"- {fault}" for fault in totals.faults[:SHOWN_FAULTS]]
    if len(totals.faults) > SHOWN_FAULTS:
        lines.append(f"- and {len(totals.faults) - SHOWN_FAULTS} more; --json lists all")
    said = f"NOT valid: {_count(len(totals.faults), 'fault')}" if totals.faults else "valid"
    entries = _count(totals.entries, "entry", "entries")
    lines.insert(0, f"the ledger is {said}; {_count(totals.accounts, 'account')}, {entries}")
    if not totals.accounts and not totals.faults:
        lines.append("the ledger has no accounts yet: is this the right database?")
    titles = ("issued", "spent", "forfeited", "available", "reserved", "sum")
    row = (totals.issued, totals.spent, totals.forfeited, totals.available, totals.reserved, totals.sum)
    return Report(data, lines, (titles, [row]), failed=bool(totals.faults))


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def _shown(totals: LedgerTotals) -> dict[str, int]:
    names = ("accounts", "entries", "issued", "spent", "forfeited", "available", "reserved", "sum")
    return {name: getattr(totals, name) for name in names}


async def show(call: CommandCall) -> Report:
    who = _user(call)

    async def look(tx: Tx) -> tuple[Credits, bool]:
        return await ledger.credits_of(tx, who), await _is_new(tx, who)

    has, is_new = await call.read(look)
    data = {"user": who[1], "balance": has.balance, "reserved": has.reserved, "available": has.available}
    line = f"{_named(who)} has {ledger.in_credits(has.balance)}: {has.available} available, {has.reserved} reserved"
    return _said(data, line, is_new)


def _user(call: CommandCall) -> User:
    return checked_user(call.arguments["tenant"], call.arguments["user"])


async def _is_new(tx: Tx, who: User) -> bool:
    return await tx.one(ext.q.account, tenant=who[0], user_id=who[1]) is None


def _named(who: User) -> str:
    tenant, user = who
    return user if tenant == DEFAULT_TENANT else f"{user} of tenant {tenant}"


def _said(data: dict[str, Any], line: str, is_new: bool) -> Report:
    return Report({**data, "new": True}, [line + NEW]) if is_new else Report(data, [line])


async def grant(call: CommandCall) -> Report:
    tenant, user = who = _user(call)
    amount, reason = call.arguments["amount"], checked_reason(call.arguments["reason"])
    async with call.tx() as tx:
        is_new = await _is_new(tx, who)
        granted = await ledger.grant(tx, who, amount, reason)
        by = {"by": call.by, "tenant": tenant, "entry": granted.seq}
        await ext.audit(tx, "CREDITS_GRANTED", user, amount=amount, reason=reason, **by)
    data = {"user": user, "entryId": entry_id(granted.seq), "balance": granted.balance}
    line = f"granted {ledger.in_credits(amount)} to {_named(who)}, who has {granted.balance} now"
    return _said(data, line, is_new)


async def statement(call: CommandCall) -> Report:
    tenant, user = _user(call)
    asked: dict[str, Any] = {"tenant": tenant, "user_id": user, "limit": call.arguments["limit"]}
    rows = await call.read(lambda tx: tx.all(ext.q.statement, before=2**63 - 1, **asked))
    entries = [
        {
            "entryId": entry_id(row["seq"]),
            "kind": row["kind"],
            "amount": row["amount"],
            "jobId": row["job_id"],
            "reason": row["reason"],
            "at": row["at"],
        }
        for row in rows
    ]
    table = [[each["at"], each["kind"], each["amount"], each["jobId"] or each["reason"]] for each in entries]
    return Report({"entries": entries}, table=(("at", "entry", "credits", "job or reason"), table))
