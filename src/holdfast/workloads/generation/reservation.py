"""Reserves credits and quota for jobs that are created, and settles both when they end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError, PaymentRequired, TooMany
from holdfast.extend import CreateRequest, Tx
from holdfast.workloads.generation import extension, ledger
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.ledger import Entry, User
from holdfast.workloads.generation.quota import Period, period_at


class Order(NamedTuple):
    """A job that is about to be created, and what it takes from its user."""

    request: CreateRequest  # its state is what is wanted
    user: User
    images: int
    cost: int

    @classmethod
    def of(cls, request: CreateRequest, cost: int) -> Order:
        wanted = request.state
        return cls(request, (request.job.tenant, wanted.user), wanted.count, cost * wanted.count)


class _Account:
    """What is left of a locked account while the orders of a batch are served."""

    def __init__(self, row: Any, period: Period) -> None:
        """A day that another server has reached, whose clock is ahead, is not left again."""
        self.available = row["balance"] - row["reserved"]
        self.day, self.month = max(row["day"], period.day), max(row["month"], period.month)
        self.day_images = row["day_images"] if row["day"] == self.day else 0
        self.month_images = row["month_images"] if row["month"] == self.month else 0

    def refusal(self, order: Order, period: Period, now: datetime) -> HoldfastError | None:
        settings = ext.settings
        for name, used, most, until in (
            ("day", self.day_images, settings.quota_per_day, period.next_day),
            ("month", self.month_images, settings.quota_per_month, period.next_month),
        ):
            if most and used + order.images > most:
                return _quota_exceeded(order, name, used, most, (until - now).total_seconds())
        return None if order.cost <= self.available else _insufficient(order, self.available)

    def take(self, order: Order) -> None:
        self.available -= order.cost
        self.day_images += order.images
        self.month_images += order.images


async def reserve(tx: Tx, orders: Sequence[Order]) -> bool:
    """Refuses the orders whose users have too little quota or credits. False: some are refused, and nothing is
    reserved."""
    rows = await ledger.lock(tx, [order.user for order in orders])
    now = ext.app.clock.now()
    period = period_at(now)
    accounts = {user: _Account(row, period) for user, row in rows.items()}
    is_refused = False
    for order in orders:
        refusal = accounts[order.user].refusal(order, period, now)
        if refusal is None:
            accounts[order.user].take(order)
        else:
            order.request.refuse(refusal)
            is_refused = True
    if is_refused:
        return False
    used = [(*user, each.day, each.day_images, each.month, each.month_images) for user, each in accounts.items()]
    await tx.run(ext.q.set_quota, used=used)
    entries = [Entry(order.user, "reserve", order.cost, order.request.job_id) for order in orders if order.cost]
    if entries:
        await ledger.add(tx, entries)
    return True


def _quota_exceeded(order: Order, period: str, used: int, most: int, seconds: float) -> TooMany:
    extension.refusals.add(1, "quota_exceeded")
    return TooMany(
        f"the quota is {most} images per {period}: {used} are used, and this request is for {order.images}",
        retry_after=max(1.0, seconds),
        code="quota_exceeded",
        audit=ext.audit_entry("QUOTA_EXCEEDED", order.user[1], period=period, used=used, quota=most),
    )


def _insufficient(order: Order, available: int) -> PaymentRequired:
    extension.refusals.add(1, "insufficient_credits")
    are = "is" if available == 1 else "are"
    return PaymentRequired(
        f"this needs {ledger.in_credits(order.cost)}, and {available} {are} available",
        code="insufficient_credits",
        audit=ext.audit_entry("INSUFFICIENT_CREDITS", order.user[1], needed=order.cost, available=available),
    )


async def settle(
    tx: Tx, user: User, job_id: str, amounts: dict[str, int], *, images: int, requested_at: datetime
) -> None:
    """End the reservation of a job. `images` are given back to the quota of the time at which it was requested."""
    row, period = (await ledger.lock(tx, [user]))[user], period_at(requested_at)
    if images:
        left = {name: _given_back(row, name, getattr(period, name), images) for name in ("day", "month")}
        used = (*user, row["day"], left["day"], row["month"], left["month"])
        await tx.run(ext.q.set_quota, used=[used])
    if entries := [Entry(user, kind, amount, job_id) for kind, amount in amounts.items() if amount]:
        await ledger.add(tx, entries)


def _given_back(row: Any, name: str, period: str, images: int) -> int:
    used = int(row[f"{name}_images"])
    return max(0, used - images) if row[name] == period else used
