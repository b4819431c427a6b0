"""Limits at run time: parts of a limit, the weights of tenants, and the audit log."""

from collections import Counter
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.engine.admin.limits import LimitView, declare_limits
from holdfast.errors import InvalidField, NotFound
from holdfast.model import NewJob
from holdfast.model.limits import Limit


async def declare(engine: Engine, **limits: Limit | None) -> None:
    await engine.store.write(lambda tx: declare_limits(tx, limits))


async def shown(engine: Engine) -> dict[str, LimitView]:
    return {view.name: view for view in await engine.job_limits.all()}


async def test_a_part_that_is_not_given_stays_as_it_is_in_force(engine: Engine) -> None:
    await engine.job_limits.set("queue:mail", Limit.of(4, "10/s", 20), by="alice")
    changed = await engine.job_limits.change("queue:mail", by="bob", concurrency=8)
    assert changed is not None
    assert (changed.limit, changed.set_by) == (Limit(8, 10.0, 20.0), "bob")


async def test_none_lifts_a_part_and_the_last_part_lifts_the_limit(engine: Engine) -> None:
    await engine.job_limits.set("queue:mail", Limit.of(4, "10/s", 20), by="alice")
    slower = await engine.job_limits.change("queue:mail", by="alice", concurrency=None)
    assert slower is not None
    assert slower.limit == Limit(None, 10.0, 20.0)
    assert await engine.job_limits.change("queue:mail", by="alice", rate=None) is None
    assert await engine.job_limits.all() == []


async def test_a_burst_that_nobody_chose_follows_the_rate(engine: Engine) -> None:
    await engine.job_limits.set("queue:mail", Limit.of(rate="100/s"), by="alice")
    slower = await engine.job_limits.change("queue:mail", by="alice", rate="2/s")
    assert slower is not None
    assert slower.limit == Limit(None, 2.0, 2.0)


async def test_lifting_what_an_app_declares_stays_until_it_is_reset(engine: Engine) -> None:
    await declare(engine, gpu=Limit.of(4))
    lifted = await engine.job_limits.change("gpu", by="alice", concurrency=None)
    assert lifted is not None
    assert (lifted.limit, lifted.declared) == (Limit(), Limit(4))
    reset = await engine.job_limits.reset("gpu", by="alice")
    assert reset is not None
    assert (reset.limit, reset.set_by) == (Limit(4), None)


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("gpu", {"weight": 2}, "only a tenant has a weight"),
        ("tenant:acme", {"weight": 0}, "weight must be a whole number from 1 to 1000"),
        ("tenant:acme", {"weight": 1001}, "weight must be a whole number from 1 to 1000"),
        ("tenant:acme", {"weight": True}, "weight must be a whole number from 1 to 1000"),
        ("tenant:acme", {}, "nothing to set"),
        ("tenant:", {"weight": 2}, "name must be 1 to 200"),
        ("gpu", {"burst": 5}, "burst needs a rate"),
        ("team:a", {"concurrency": 1}, "a limit is type:NAME"),
    ],
)
async def test_an_invalid_change_is_rejected(engine: Engine, name: str, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidField, match=message):
        await engine.job_limits.change(name, by="alice", **parts)
    assert await engine.job_limits.all() == []


async def test_a_weight_of_a_tenant_without_a_limit_is_listed_until_it_is_reset(engine: Engine) -> None:
    """The tenant needs no job yet."""
    await engine.job_limits.change("tenant:acme", by="alice", weight=3)
    assert await shown(engine) == {"tenant:acme": LimitView("tenant:acme", Limit(), 0, None, None, None, 3)}
    assert await engine.job_limits.reset("tenant:acme") is None
    assert await shown(engine) == {}
    with pytest.raises(NotFound, match="there is no limit 'tenant:acme'"):
        await engine.job_limits.reset("tenant:acme")


async def test_a_weight_stays_when_the_limit_of_its_tenant_changes(engine: Engine) -> None:
    await engine.job_limits.set("tenant:acme", Limit(4), by="alice", weight=3)
    await engine.job_limits.set("tenant:acme", Limit(5), by="alice")
    await engine.job_limits.set("tenant:other", Limit(5), by="alice")
    await engine.job_limits.set("queue:mail", Limit(5), by="alice")
    weights = {name: view.weight for name, view in (await shown(engine)).items()}
    assert weights == {"tenant:acme": 3, "tenant:other": 1, "queue:mail": None}


async def test_a_change_of_the_weight_alone_leaves_the_limit_to_who_set_it(engine: Engine) -> None:
    await engine.job_limits.set("tenant:acme", Limit(4), by="alice")
    changed = await engine.job_limits.change("tenant:acme", by="bob", weight=3)
    assert changed is not None
    assert (changed.limit, changed.set_by, changed.weight) == (Limit(4), "alice", 3)
    assert (await engine.job_limits.change("tenant:acme", by="bob", weight=None)).weight == 1  # type: ignore[union-attr]


async def test_claims_are_divided_by_the_weights_of_tenants(engine: Engine, worker: str) -> None:
    await engine.job_limits.change("tenant:acme", by="alice", weight=3)
    for tenant in ("acme", "other"):
        await engine.create_many([NewJob(type="n", tenant=tenant)] * 12)
    leases = await engine.claim(worker, limit=8)
    assert Counter(lease.tenant for lease in leases) == {"acme": 6, "other": 2}


async def test_changes_are_written_to_the_audit_log(engine: Engine) -> None:
    await engine.job_limits.set("tenant:acme", Limit(4), by="alice", weight=3)
    await engine.job_limits.reset("tenant:acme", by="bob")
    reset, was_set = (await engine.audit.page()).lines
    assert (was_set.actor, was_set.action, was_set.subject) == ("alice", "limit.set", "tenant:acme")
    assert was_set.detail == {"concurrency": 4, "weight": 3}
    assert (reset.actor, reset.action, reset.subject) == ("bob", "limit.reset", "tenant:acme")
