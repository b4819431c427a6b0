"""Checks of what an operator enters, over HTTP or as a command: a user of a tenant, and the reason of a grant."""

from __future__ import annotations

from holdfast.errors import InvalidField
from holdfast.workloads.generation.ledger import User
from holdfast.workloads.generation.wanted import USER_CHARS_MAX, check_text

TENANT_CHARS_MAX = 200
REASON_CHARS_MAX = 500


def checked_user(tenant: str, user: str) -> User:
    """Raises `InvalidField`, also for text that a database cannot store."""
    _check("tenant", tenant, TENANT_CHARS_MAX)
    _check("user", user, USER_CHARS_MAX)
    return tenant, user


def checked_reason(reason: str) -> str:
    """Raises `InvalidField`, also for text that a database cannot store."""
    _check("reason", reason, REASON_CHARS_MAX)
    return reason


def _check(field: str, text: str, most: int) -> None:
    if not text:
        raise InvalidField(f"{field} is empty", field=field)
    check_text(field, text, most)
