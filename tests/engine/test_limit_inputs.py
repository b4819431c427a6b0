"""Limits and keys as users give them: odd ones are refused with a clear error, and cost no other job anything."""

from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.engine.insert import checked
from holdfast.errors import Invalid, InvalidField
from holdfast.model import JobType, NewJob
from holdfast.model.limits import JobLimits, KeyFunctions, Limit


@pytest.mark.parametrize(
    "rate",
    ["10/0s", "1/" + "9" * 400 + "s", "9" * 400 + "/s", 10**400, 1e-300, "1/99999999999999d", "x", "", "-1/s", True],
)
def test_a_rate_that_is_none_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidField, match="rate must be"):
        Limit.of(rate=rate)


@pytest.mark.parametrize(
    ("rate", "number"), [("10/s", 10), ("600/min", 10), ("1/5s", 0.2), (0.5, 0.5), ("1/d", 1 / 86_400)]
)
def test_a_rate_is_read_as_units_a_second(rate: Any, number: float) -> None:
    assert Limit.of(rate=rate) == Limit(None, number, max(1.0, number))


@pytest.mark.parametrize(
    "units",
    [{"gpu": 0}, {"gpu": 1.5}, {"gpu": True}, {"a:b": 1}, {"": 1}, "gpu", [["a"]], {f"n{n}": 1 for n in range(21)}],
)
async def test_units_that_make_no_sense_are_refused(engine: Engine, units: Any) -> None:
    with pytest.raises(InvalidField):
        await engine.create(NewJob(type="n", limits=units))


@pytest.mark.parametrize("key", ["", " a", "a ", "a\n", "x" * 256, 5])
async def test_a_key_that_cannot_be_shown_is_refused(engine: Engine, key: Any) -> None:
    with pytest.raises(InvalidField, match="limit_key"):
        await engine.create(NewJob(type="n", limit_key=key))


async def test_a_type_with_a_space_has_no_limit_keys(engine: Engine) -> None:
    """Its limit and that of a key of another type would have one name."""
    with pytest.raises(InvalidField, match="space"):
        await engine.create(NewJob(type="send mail", limit_key="a"))
    with pytest.raises(InvalidField, match="space"):
        await engine.job_types.declare(JobType(name="send mail", limits=JobLimits(key_from="domain")))


def domain_of(payload: dict[str, Any]) -> Any:
    return payload["domain"]


async def declared_with_function(engine: Engine) -> None:
    engine.ctx.registry.key_functions = lambda name: KeyFunctions(domain_of if name == "crawl" else None, None)
    await engine.job_types.declare(JobType(name="crawl", limits=JobLimits(key_from="")))


async def test_a_key_function_that_raises_refuses_its_own_job_only(engine: Engine) -> None:
    await declared_with_function(engine)
    jobs = [NewJob(type="crawl"), NewJob(type="crawl", payload={"domain": "a"}), NewJob(type="other")]

    refused, *made = await engine.create_each([checked(job) for job in jobs])

    assert isinstance(refused, Invalid)
    assert "limit_key of job type 'crawl' cannot be computed from this payload: KeyError: 'domain'" in str(refused)
    assert not any(isinstance(one, Exception) for one in made)


async def test_a_key_function_is_missed_in_a_process_without_the_app(engine: Engine) -> None:
    await declared_with_function(engine)
    engine.ctx.registry.key_functions = lambda _: KeyFunctions(None, None)
    with pytest.raises(InvalidField, match="computed by a function of its app"):
        await engine.create(NewJob(type="crawl", payload={"domain": "a"}))
    made = await engine.create(NewJob(type="crawl", payload={}, limit_key="a"))
    assert (await engine.reads.get(made.id)).limit_key == "a"


async def test_a_redriven_job_keeps_its_keys_and_one_with_another_payload_gets_its_own(
    engine: Engine, worker: str
) -> None:
    await declared_with_function(engine)
    without = await engine.create(NewJob(type="crawl", payload={"domain": None}))
    with_key = await engine.create(NewJob(type="crawl", payload={"domain": "a"}))
    for lease in await engine.claim(worker, limit=9):
        await engine.complete(worker, lease.id, lease.token)

    again = await engine.redrive(with_key.id)
    other = await engine.redrive(with_key.id, payload={"domain": "b"})
    engine.ctx.registry.key_functions = lambda _: KeyFunctions(None, None)
    elsewhere = [await engine.redrive(one.id) for one in (without, with_key)]

    keys = [(await engine.reads.get(one.id)).limit_key for one in (again, other, *elsewhere)]
    assert keys == ["a", "b", None, "a"]
