"""Routes for operators: grant credits, read those of a user, and see what providers cost."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.extend import Header, Reply, Request
from holdfast.workloads.generation import ledger
from holdfast.workloads.generation.extension import OPERATE, ext
from holdfast.workloads.generation.operators import REASON_CHARS_MAX, TENANT_CHARS_MAX, checked_reason, checked_user
from holdfast.workloads.generation.routes.accounts import credits_of
from holdfast.workloads.generation.views import Costs, CreditsView, Granted, ProviderCost, entry_id
from holdfast.workloads.generation.wanted import USER_CHARS_MAX

READ = "admin:read"
KEY = "Idempotency-Key"
GRANT_MAX = 10**12
DAY_SECONDS = 86_400
Tenant = Annotated[
    str, msgspec.Meta(min_length=1, max_length=TENANT_CHARS_MAX, description="Without it that of the key.")
]
User = Annotated[str, msgspec.Meta(min_length=1, max_length=USER_CHARS_MAX)]


class NewGrant(msgspec.Struct, forbid_unknown_fields=True):
    user: User
    amount: Annotated[int, msgspec.Meta(ge=1, le=GRANT_MAX)]
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_CHARS_MAX)]
    tenant: Tenant | None = None


class CreditsQuery(msgspec.Struct, forbid_unknown_fields=True):
    user: User
    tenant: Tenant | None = None


class CostsQuery(msgspec.Struct, forbid_unknown_fields=True):
    tenant: Tenant | None = None
    days: Annotated[int, msgspec.Meta(ge=1, le=3660)] = 30


@ext.route(
    *("POST", "/api/admin/credits/grant"),
    scope=OPERATE,
    about="Grant credits to a user.",
    body=NewGrant,
    names_field=True,
    headers=(Header(KEY, "Requests with the same key grant once.", "refund-4711"),),
    answers={201: Granted},
)
async def grant(request: Request) -> Reply:
    wanted, key = request.body, request.idempotency_key
    user, reason = checked_user(_tenant(request, wanted.tenant), wanted.user), checked_reason(wanted.reason)
    async with request.tx() as tx:
        granted = await ledger.grant(tx, user, wanted.amount, reason, key)
        if not granted.existed:
            by = {"by": request.caller.name, "tenant": user[0], "entry": granted.seq}
            await ext.audit(tx, "CREDITS_GRANTED", user[1], amount=wanted.amount, reason=reason, **by)
    return Reply(201, Granted(entry_id(granted.seq), granted.balance))


def _tenant(request: Request, named: str | None) -> str:
    return named or request.caller.tenant


@ext.route(
    *("GET", "/api/admin/credits"),
    scope=READ,
    about="Read the credits of a user.",
    query=CreditsQuery,
    answers={200: CreditsView},
)
async def read(request: Request) -> CreditsView:
    query = request.query
    return await credits_of(request, *checked_user(_tenant(request, query.tenant), query.user))


@ext.route(
    *("GET", "/api/admin/generations/costs"),
    scope=READ,
    about="What the providers of images have charged, by provider.",
    query=CostsQuery,
    answers={200: Costs},
)
async def costs(request: Request) -> Costs:
    asked = {"tenant": _tenant(request, request.query.tenant), "seconds": request.query.days * DAY_SECONDS}
    rows = await request.read(lambda tx: tx.all(ext.q.charges, **asked))
    return Costs([ProviderCost(row["provider"], row["images"], row["micros"]) for row in rows])
