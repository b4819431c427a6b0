"""Turns between tenants: how many jobs a claim takes from each lane. Pure, except for what each tenant is owed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import heapify, heapreplace
from itertools import cycle
from typing import NamedTuple

from holdfast.model import Lease
from holdfast.store import Row

PRIORITY_MIN, PRIORITY_MAX = -100, 100


class OpenHead(NamedTuple):
    """A lane with claimable jobs: the priority and id of its most urgent one, its tenant, and the tenant's weight.

    `level`: only jobs of this priority, which count as more urgent by their age."""

    lane: int
    priority: int
    head: str
    tenant: str
    weight: int = 1
    level: int | None = None

    def priorities(self, floor: int) -> tuple[int, int]:
        """Of the jobs to take, if other lanes have heads of priority `floor`."""
        return (floor, PRIORITY_MAX) if self.level is None else (self.level, self.level)

    def aged(self, level: int, head: str, steps: int) -> OpenHead:
        """The head of one priority of the lane, more urgent by so many steps."""
        return self._replace(level=level, head=head, priority=level + steps)


def heads_of(lanes: Iterable[Row]) -> list[OpenHead]:
    return [OpenHead(row["id"], row["priority"], row["head"], row["tenant"], row["weight"]) for row in lanes]


def in_turn(heads: list[OpenHead], lanes: Mapping[int, Row]) -> list[OpenHead]:
    """Among the keyed lanes of one lane, turns decide and not the age of their heads: the one that has waited longest
    for its turn is treated as if it had the most urgent head of that priority."""
    alike: dict[tuple[int, int], list[int]] = {}
    for place, head in enumerate(heads):
        if (row := lanes[head.lane])["turn_at"] is not None:
            alike.setdefault((row["lane"], head.priority if head.level is None else head.level), []).append(place)
    turned = list(heads)
    for places in alike.values():
        order = sorted(places, key=lambda place: (lanes[heads[place].lane]["since"], heads[place].lane))
        urgent = sorted((heads[place] for place in places), key=_urgency)
        for place, other in zip(order, urgent, strict=True):
            turned[place] = heads[place]._replace(priority=other.priority, head=other.head)
    return turned


def in_order(leases: Iterable[Lease]) -> list[Lease]:
    """The jobs of a claim in the order in which a worker starts them: by urgency, and those of several tenants spread
    evenly, so that the only job of one does not start behind all those of another."""
    ordered = sorted(leases, key=lambda lease: (-lease.priority, lease.id))
    if len({lease.tenant for lease in ordered}) <= 1:
        return ordered
    tenants: dict[str, list[Lease]] = {}
    for lease in ordered:
        tenants.setdefault(lease.tenant, []).append(lease)
    placed = [(place / len(own), lease) for own in tenants.values() for place, lease in enumerate(own)]
    return [lease for _, lease in sorted(placed, key=lambda one: one[0])]


def _urgency(head: OpenHead) -> tuple[int, str]:
    return -head.priority, head.head


class LastTaken(NamedTuple):
    """The job of the only lane that was taken last, of those of the least priority; may be used until then.
    `looked_until`: until then, no other jobs are looked for. `jobs`: how many this process has taken from the lane
    without finding too few."""

    priority: int
    id: str
    until: float
    looked_until: float
    jobs: int


class Turn(NamedTuple):
    """A job of a lane, of at least this priority."""

    lane: int
    floor: int


class Share(NamedTuple):
    """What a claim takes from a lane: jobs of these priorities, at most so many."""

    lane: int
    floor: int
    ceiling: int
    most: int


class Turns:
    """Divides each claim between the tenants that have jobs, by their weights.

    A tenant is owed its part of each claim in which it had a lane; fractions are carried over to the next claim. Within
    a tenant, priority decides, and then the age of the head of a lane.
    """

    def __init__(self) -> None:
        self._owed: dict[str, float] = {}
        self._next_at: dict[str, float] = {}  # of planned turns, on a clock of their own

    def shares(self, heads: Sequence[OpenHead], limit: int) -> list[Share]:
        tenants: dict[str, list[OpenHead]] = {}
        for head in heads:
            tenants.setdefault(head.tenant, []).append(head)
        if len(tenants) == 1:
            self._owed = {}
            return _of_tenant(heads, limit)
        return [
            share
            for tenant, quota in self._quotas({tenant: own[0].weight for tenant, own in tenants.items()}, limit)
            for share in _of_tenant(tenants[tenant], quota)
        ]

    def took(self, tenants: Iterable[str]) -> None:
        """The tenants of the jobs that were leased."""
        for tenant in tenants:
            if tenant in self._owed:
                self._owed[tenant] -= 1

    def plan(self, lanes: Sequence[Row], taken: Iterable[Row], after: Set[int]) -> list[Turn]:
        """As many turns as there are lanes whose turn has not come: tenants alternate by their weights, and within a
        tenant the lanes with its most urgent heads. Jobs were `taken` from the lanes `after`, which come last."""
        own: dict[str, list[Row]] = {}
        for row in sorted(lanes, key=lambda row: (-row["priority"], row["id"] in after, row["head"])):
            own.setdefault(row["tenant"], []).append(row)
        step = {tenant: 1 / rows[0]["weight"] for tenant, rows in own.items()}
        begin = min((self._next_at[tenant] for tenant in own if tenant in self._next_at), default=0.0)
        next_at = {tenant: self._next_at.get(tenant, begin + step[tenant]) - begin for tenant in own}
        for row in taken:
            if row["tenant"] in own:
                next_at[row["tenant"]] += step[row["tenant"]]
        turns = {tenant: cycle(_urgent_turns(rows)) for tenant, rows in own.items()}
        clock = [(at, place, tenant) for place, (tenant, at) in enumerate(next_at.items())]
        heapify(clock)
        planned: list[Turn] = []
        for _ in range(sum(row["id"] not in after for row in lanes)):
            at, place, tenant = clock[0]
            heapreplace(clock, (at + step[tenant], place, tenant))
            planned.append(next(turns[tenant]))
        self._next_at = {tenant: at for at, _, tenant in clock}
        return planned

    def _quotas(self, weights: dict[str, int], limit: int) -> list[tuple[str, int]]:
        total = sum(weights.values())
        # A tenant that did not use what it was owed keeps at most one claim's worth of it.
        owed = {
            tenant: min(self._owed.get(tenant, 0.0), limit) + limit * weight / total
            for tenant, weight in weights.items()
        }
        self._owed = owed  # tenants without jobs are forgotten
        order = sorted(owed, key=lambda tenant: (-owed[tenant], tenant))
        quotas = {tenant: max(0, int(owed[tenant])) for tenant in order}
        left = limit - sum(quotas.values())
        for tenant in order:
            if left <= 0:
                break
            quotas[tenant] += 1
            left -= 1
        return _within(quotas, limit)


def _within(quotas: dict[str, int], limit: int) -> list[tuple[str, int]]:
    """The quotas in their order, cut where they exceed the limit."""
    cut: list[tuple[str, int]] = []
    for tenant, quota in quotas.items():
        if (most := min(quota, limit)) > 0:
            cut.append((tenant, most))
            limit -= most
    return cut


def _of_tenant(heads: Sequence[OpenHead], quota: int) -> list[Share]:
    """The lanes with the most urgent head share the quota. Other jobs of theirs are taken only down to the priority of
    the next lane's head: behind a head there may be jobs that are more urgent."""
    order = sorted(heads, key=lambda head: (-head.priority, head.head))
    urgent = [head for head in order if head.priority == order[0].priority][:quota]
    floor = order[1].priority if len(order) > 1 else PRIORITY_MIN  # that of the head, if there are several urgent lanes
    each, more = divmod(quota, len(urgent))
    return [Share(head.lane, *head.priorities(floor), each + (place < more)) for place, head in enumerate(urgent)]


def _urgent_turns(rows: list[Row]) -> list[Turn]:
    """Of one tenant, the most urgent first: see `_of_tenant`."""
    floor = rows[1]["priority"] if len(rows) > 1 else PRIORITY_MIN
    return [Turn(row["id"], floor) for row in rows if row["priority"] == rows[0]["priority"]]
