"""The audit log: append-only entries of what operators did, chained by digests, so that tampering is detected."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.clock import to_micros
from holdfast.errors import Conflict, InvalidField
from holdfast.model.json import decode
from holdfast.model.numbers import check_limit
from holdfast.store import Row, Tx, q

PAGE_MAX = 500
WALK = 1000
SEQ_MAX = 2**63 - 1
TRIES_MAX = 1000  # each lost race means that another writer made progress


class AuditedAction(msgspec.Struct, frozen=True):
    """Who did what to which object. `detail` never contains a secret or a payload."""

    actor: str
    action: str
    subject: str | None = None
    detail: dict[str, Any] = {}


class AuditEntry(msgspec.Struct, frozen=True):
    seq: int
    at: datetime
    actor: str
    action: str
    subject: str | None
    detail: Any
    previous: str
    digest: str

    @classmethod
    def from_row(cls, row: Row) -> AuditEntry:
        values = {name: row[name] for name in cls.__struct_fields__}
        return cls(**{**values, "detail": _detail(values["detail"])})


class AuditPage(msgspec.Struct, frozen=True):
    lines: list[AuditEntry]
    next: int | None


class AuditVerification(msgspec.Struct, frozen=True):
    """`last` and `digest`, stored elsewhere, prove later that no entry was removed from the end."""

    lines: int
    last: int
    digest: str
    wrong: int | None = None
    why: str | None = None


async def audited(tx: Tx, by: str | None, action: str, subject: str, detail: dict[str, Any] | None = None) -> None:
    """Append the entry of an operator's change to its transaction. Without `by` there is none."""
    if by is not None:
        await record(tx, AuditedAction(by, action, subject, detail or {}))


async def record(tx: Tx, action: AuditedAction) -> int:
    """Append an entry and return its number. Call it last in a transaction: all other writers wait until it ends."""
    detail = msgspec.json.encode(action.detail, order="sorted").decode()
    for _ in range(TRIES_MAX):
        end = await tx.one(q.audit_end)
        assert end is not None, "it returns a row even for an empty log"  # noqa: S101
        line = {
            "seq": end["seq"] + 1,
            "at": end["now_at"],
            "actor": action.actor,
            "action": action.action,
            "subject": action.subject,
            "detail": detail,
            "previous": end["digest"],
        }
        if await tx.one(q.append_audit, **line, digest=_digest(line)) is not None:
            return int(line["seq"])
    raise Conflict("too many processes write to the audit log at once; try again", code="audit_contended")


async def record_all(tx: Tx, actions: Iterable[AuditedAction]) -> None:
    for action in actions:
        await record(tx, action)


def _digest(line: Any) -> str:
    values = (line["seq"], to_micros(line["at"]), *(line[name] for name in ("actor", "action", "subject", "detail")))
    return sha256(msgspec.json.encode((*values, line["previous"]))).hexdigest()


def _detail(text: str) -> Any:
    """Decoded; the raw text if an entry was tampered with."""
    try:
        return decode(text)
    except msgspec.DecodeError:
        return text


async def page(tx: Tx, *, before: int | None = None, limit: int = 50) -> AuditPage:
    """Newest first; `next` is the `before` of the next page."""
    check_limit(limit, "lines", most=PAGE_MAX)
    rows = await tx.all(q.page_audit, before=SEQ_MAX if before is None else before, limit=limit + 1)
    lines = [AuditEntry.from_row(row) for row in rows[:limit]]
    return AuditPage(lines, lines[-1].seq if len(rows) > limit else None)


async def verify(tx: Tx, *, seq: int | None = None, digest: str | None = None) -> AuditVerification:
    """Check all entries from the first, and return the first that is wrong.

    `seq` and `digest` are those of an earlier last entry, which must still be there.
    """
    if (seq is None) is not (digest is None):
        raise InvalidField("seq and digest must be given together", field="seq" if seq is None else "digest")
    last, previous = 0, ""
    while rows := await tx.all(q.walk_audit, after=last, limit=WALK):
        for row in rows:
            fault = _fault(row, last, previous) or _mismatch(row, seq, digest)
            if fault:
                return AuditVerification(last, last, previous, wrong=row["seq"], why=fault)
            last, previous = row["seq"], row["digest"]
    if seq is not None and seq > last:
        return AuditVerification(last, last, previous, wrong=seq, why=f"the entries after {last} are missing")
    return AuditVerification(last, last, previous)


def _fault(row: Row, last: int, previous: str) -> str | None:
    if row["seq"] != last + 1:
        return f"an entry before it is missing: {last} is followed by {row['seq']}"
    if row["previous"] != previous:
        return "its link to the previous entry is wrong"
    return None if row["digest"] == _digest(row) else "its content was changed"


def _mismatch(row: Row, seq: int | None, digest: str | None) -> str | None:
    return "its digest is not the given one" if row["seq"] == seq and row["digest"] != digest else None
