"""Routes of credits: what a user has, and the statement of all entries."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.extend import Request, Tx
from holdfast.workloads.generation import ledger
from holdfast.workloads.generation.extension import READ, ext
from holdfast.workloads.generation.routes.cursors import before_seq
from holdfast.workloads.generation.users import user_of
from holdfast.workloads.generation.views import CreditsView, StatementPage, entry_view


class StatementQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


@ext.route("GET", "/credits", scope=READ, about="Read your credits.", answers={200: CreditsView})
async def read(request: Request) -> CreditsView:
    return await credits_of(request, request.caller.tenant, user_of(request))


async def credits_of(request: Request, tenant: str, user: str) -> CreditsView:
    has = await request.read(lambda tx: ledger.credits_of(tx, (tenant, user)))
    return CreditsView(has.balance, has.reserved, has.available)


@ext.route(
    *("GET", "/credits/statement"),
    scope=READ,
    about="List the entries of your credits, the newest first.",
    query=StatementQuery,
    answers={200: StatementPage},
)
async def statement(request: Request) -> StatementPage:
    query, tenant, user = request.query, request.caller.tenant, user_of(request)
    asked = {"before": before_seq(query.cursor), "limit": query.limit + 1}

    async def page(tx: Tx) -> list[Any]:
        return await tx.all(ext.q.statement, tenant=tenant, user_id=user, **asked)

    rows = await request.read(page)
    if not rows and query.cursor is None:  # a new user: the starting credits are the first entry
        async with request.tx() as tx:
            await ledger.open_account(tx, (tenant, user))
            rows = await page(tx)
    shown = rows[: query.limit]
    cursor = str(shown[-1]["seq"]) if len(rows) > len(shown) else None
    return StatementPage([entry_view(row) for row in shown], cursor)
