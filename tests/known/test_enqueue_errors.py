"""What a call that cannot become a job says: which argument it is, and what to write instead."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from holdfast import App, Context
from holdfast.errors import Invalid
from holdfast.testing import jobs_of

app = App()


class Price:
    """Not JSON, and not a model."""


@dataclass
class Line:
    article: str
    price: Any = 0


class Order(msgspec.Struct):
    lines: list[Line] = msgspec.field(default_factory=list)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass
class Chain:
    rest: Any = field(default=None)


@app.job()
async def ship(order: Any, express: bool = False) -> Any:
    return order


@app.job()
async def anything(**rest: Any) -> None: ...


@app.job()
def in_a_thread(ctx: Context, number: int) -> dict[str, Any]:
    return told(ctx, number)


@app.job(isolation="process")
def in_a_process(ctx: Context, number: int) -> dict[str, Any]:
    return told(ctx, number)


@app.job()
def with_or_without(number: int, ctx: Context | None = None) -> bool:
    return ctx is not None


def told(ctx: Any, number: int) -> dict[str, Any]:
    ctx.progress(50, "half")
    ctx.save({"at": number})
    parts = [part.name for part in ctx.parts(["a", "b"])]
    return {
        "parts": parts,
        "step": ctx.step("double", lambda: 2 * number),
        "checkpoint": ctx.checkpoint,
        "on the loop": threading.current_thread() is threading.main_thread(),
    }


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(Invalid) as refused:
        call()
    assert refused.value.code == "invalid_payload"
    return refused.value.message


def test_an_option_passed_as_an_argument_is_refused_with_a_hint() -> None:
    said = refusal(lambda: ship.enqueue_sync(order=1, delay=3))  # type: ignore[call-arg]
    assert "ship has no parameter 'delay'" in said
    assert "ship.options(delay=3).enqueue_sync(...)" in said
    several = refusal(lambda: ship.enqueue_many_sync([{"order": 1}, {"order": 2, "queue": "q"}]))
    assert "call 1:" in several
    assert "ship.options(queue='q').enqueue_many_sync(...)" in several


async def test_an_option_passed_as_an_argument_of_an_async_call_is_refused_with_a_hint() -> None:
    with pytest.raises(Invalid, match=r"ship\.options\(delay=3\)\.enqueue\(\.\.\.\)"):
        await ship.enqueue(order=1, delay=3)  # type: ignore[call-arg]


def test_a_typo_in_an_argument_suggests_the_nearest_parameter() -> None:
    said = refusal(lambda: ship.enqueue_sync(order=1, expres=True))  # type: ignore[call-arg]
    assert said == "ship has no parameter 'expres'; did you mean 'express'?"


def test_a_handler_that_takes_any_argument_takes_one_named_like_an_option() -> None:
    with jobs_of(app) as jobs:
        anything.enqueue_sync(delay=3)
        assert [job.payload for job in jobs.enqueued(anything)] == [{"delay": 3}]


def endless() -> Chain:
    chain = Chain()
    chain.rest = [chain]
    return chain


@pytest.mark.parametrize(
    ("order", "place"),
    [
        (Price(), "order is a Price"),
        ({"lines": [1, Price()]}, "order.lines[1] is a Price"),
        (Order([Line("pen"), Line("ink", Price())]), "order.lines[1].price is a Price"),
        (Order(notes={"a": (1, {2: {"b": Price()}})}), "order.notes.a[1].2.b is a Price"),
        ([{Price(): 1}], "order[0] has a key that is a Price"),
        (iter([1]), "order is a list_iterator"),
        (object.__new__, "order is a builtin_function_or_method"),
        (endless(), "order.rest[0] contains itself"),
        ({1, Price()}, "order[...] is a Price"),
    ],
)
def test_an_argument_that_is_not_json_is_named_with_the_place_inside_it(order: Any, place: str) -> None:
    said = refusal(lambda: ship.enqueue_sync(order=order))
    assert said.startswith("cannot store the arguments of ship as JSON: ")
    assert place in said
    assert place in refusal(lambda: ship.enqueue_sync(order))


def test_a_result_that_is_not_json_is_named_with_the_place_inside_it() -> None:
    with pytest.raises(Invalid, match=r"result of ship .*: result\.a\[0\] is a Price"):
        ship.handler.signature.result({"a": [Price()]})


@pytest.fixture
def jobs() -> Iterator[Any]:
    with jobs_of(app) as jobs:
        yield jobs


@pytest.mark.parametrize("job", [in_a_thread, in_a_process])
def test_a_context_works_in_a_plain_function(jobs: Any, job: Any) -> None:
    job.enqueue_sync(number=4)
    ran = jobs.drain_sync()
    assert ran[0].result == {"parts": ["a", "b"], "step": 8, "checkpoint": {"at": 4}, "on the loop": False}


def test_an_optional_context_is_no_part_of_the_payload(jobs: Any) -> None:
    with_or_without.enqueue_sync(number=1)
    assert jobs.drain_sync()[0].result is True
