"""Payload and result: checked against the function's annotations, stored as JSON, and given back as what they were."""

import dataclasses
import enum
import typing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import App, JobFailed, Snooze
from holdfast.errors import Invalid
from holdfast.lifecycle import State
from holdfast.model.job import PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX
from tests.app.steps import drained, jobs_in


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Address(TypedDict):
    street: str
    zip: NotRequired[str]


class Order(msgspec.Struct):
    number: int
    at: datetime
    tags: set[str] = set()


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal


class Invoice(pydantic.BaseModel):
    """Everything that makes a model's JSON differ from its fields: an alias, strictness, what is computed."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    paid_at: datetime = pydantic.Field(alias="paidAt")
    lines: list[Line]

    @pydantic.computed_field
    @property
    def total(self) -> Decimal:
        return sum((line.price for line in self.lines), Decimal(0))


@dataclasses.dataclass
class Basket:
    owner: UUID
    colour: Colour
    points: list[Point]
    invoice: Invoice | None = None


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAID = Invoice(paidAt=NOON, lines=[Line(sku="a", price=Decimal("1.10")), Line(sku="b", price=Decimal(2))])
KINDS: dict[str, tuple[Any, Any]] = {
    "text": (str, "ü \U0001f600"),
    "integer": (int, 2**63),
    "float": (float, 0.1),
    "bool": (bool, True),
    "nothing": (int | None, None),
    "optional": (typing.Optional[int], 5),  # noqa: UP045
    "list": (list[int], [1, 2]),
    "tuple": (tuple[int, str], (1, "a")),
    "set": (set[str], {"a"}),
    "dict": (dict[str, list[int]], {"a": [1]}),
    "dict by number": (dict[int, str], {1: "a"}),
    "dict by uuid": (dict[UUID, int], {UUID(int=7): 7}),
    "anything": (Any, {"a": [1, None, 2.5]}),
    "literal": (Literal["a", 5], 5),
    "enum": (Colour, Colour.RED),
    "int enum": (Size, Size.BIG),
    "datetime": (datetime, NOON),
    "date": (date, NOON.date()),
    "time": (time, time(12, 30)),
    "timedelta": (timedelta, timedelta(hours=36, microseconds=1)),
    "uuid": (UUID, UUID(int=5)),
    "decimal": (Decimal, Decimal("10.10")),
    "bytes": (bytes, b"\x00\xff"),
    "limited": (Annotated[int, msgspec.Meta(gt=0)], 1),
    "dataclass": (Point, Point(1, 2)),
    "typed dict": (Address, {"street": "s"}),
    "struct": (Order, Order(1, NOON, {"a"})),
    "pydantic": (Invoice, PAID),
    "models in a list": (list[Line], PAID.lines),
    "models in a dict": (dict[str, Line | None], {"a": PAID.lines[0], "b": None}),
    "models in a dataclass": (Basket, Basket(UUID(int=1), Colour.RED, [Point(1)], PAID)),
}


def echo(app: App, kind: Any, name: str = "echo") -> Any:
    """A job that says what type of thing it got, and returns it."""

    async def function(value: Any) -> Any:
        seen.append(value)
        return value

    seen: list[Any] = []
    function.__annotations__ = {"value": kind, "return": kind}
    return app.job(name)(function), seen


class TestRoundTrips:
    async def test_every_type_round_trips_through_payload_and_result(self, app: App) -> None:
        """Into the database, to the handler, back as the result, and to the caller of `result`."""
        jobs = {}
        for name, (kind, value) in KINDS.items():
            job_type, seen = echo(app, kind, name)
            jobs[name] = (await job_type.enqueue(value), seen, value)
        assert await drained(app) == len(KINDS)
        for name, (job, seen, value) in jobs.items():
            assert seen == [value], name
            assert type(seen[0]) is type(value), name
            result = await job.result(60)
            assert (result, type(result)) == (value, type(value)), name

    async def test_a_payload_is_stored_as_plain_json(self, app: App) -> None:
        job_type, _ = echo(app, Basket)
        job = await job_type.enqueue(Basket(UUID(int=1), Colour.RED, [Point(1)], PAID))
        assert (await job.get()).payload == {
            "value": {
                "owner": str(UUID(int=1)),
                "colour": "red",
                "points": [{"x": 1, "y": 0}],
                "invoice": {
                    "paidAt": "2026-03-01T12:00:00Z",
                    "lines": [{"sku": "a", "price": "1.10"}, {"sku": "b", "price": "2"}],
                },
            }
        }

    async def test_json_is_accepted_in_place_of_a_model(self, app: App) -> None:
        job_type, seen = echo(app, list[Point])
        await job_type.enqueue([{"x": 1}, Point(2)])
        await drained(app)
        assert seen == [[Point(1), Point(2)]]

    async def test_a_default_is_the_functions_own_and_is_not_stored(self, app: App) -> None:
        """The next release may have another one, and a job that left it open gets that."""

        @app.job()
        async def mail(to: str, copies: int = 1, at: datetime = NOON) -> list[Any]:
            return [to, copies, at]

        plain, more = await mail.enqueue("a"), await mail.enqueue("b", copies=2)
        assert ((await plain.get()).payload, (await more.get()).payload) == ({"to": "a"}, {"to": "b", "copies": 2})
        await drained(app)
        assert [await job.result(60) for job in (plain, more)] == [
            ["a", 1, "2026-03-01T12:00:00Z"],
            ["b", 2, "2026-03-01T12:00:00Z"],
        ]

    async def test_extra_arguments_go_to_the_keyword_parameter(self, app: App) -> None:
        @app.job()
        async def note(title: str, **fields: date) -> dict[str, date]:
            assert all(type(field) is date for field in fields.values())
            return fields

        job = await note.enqueue("t", made=date(2026, 1, 2), due=date(2026, 1, 3))
        assert (await job.get()).payload == {"title": "t", "made": "2026-01-02", "due": "2026-01-03"}
        await drained(app)
        assert await job.result(60) == {"made": date(2026, 1, 2), "due": date(2026, 1, 3)}


class TestRefusals:
    """Before anything is written, naming the job type and the parameter."""

    @pytest.fixture
    def app(self) -> App:
        return App(database_url="sqlite:////nowhere/at/all.db")

    @pytest.mark.parametrize(
        ("kind", "value", "says"),
        [
            (int, "5", "Expected `int`, got `str`"),
            (int, True, "Expected `int`, got `bool`"),
            (str, 5, "Expected `str`, got `int`"),
            (int, None, "Expected `int`, got `null`"),
            (Literal["a"], "b", "Invalid enum value 'b'"),
            (Colour, "blue", "Invalid enum value 'blue'"),
            (datetime, "yesterday", "Invalid RFC3339"),
            (UUID, "x", "Invalid UUID"),
            (Decimal, "a lot", "Invalid decimal"),
            (Annotated[int, msgspec.Meta(gt=0)], 0, "Expected `int` >= 1"),
            (Point, {"y": 1}, "missing required field `x`"),
            (Address, {}, "missing required field `street`"),
            (Order, {"number": "1"}, "Expected `int`, got `str`"),
            (Line, {"sku": "a", "price": "dear"}, "price"),
            (int, object(), "as JSON: value is an object"),
            (Any, object(), "as JSON: value is an object"),
            (Any, {1, object()}, "as JSON: value[...] is an object"),
        ],
    )
    async def test_a_wrong_value_is_refused(self, app: App, kind: Any, value: Any, says: str) -> None:
        job_type, _ = echo(app, kind, "ECHO")
        with pytest.raises(Invalid) as refused:
            await job_type.enqueue(value)
        assert (refused.value.code, "ECHO" in str(refused.value)) == ("invalid_payload", True)
        assert says in str(refused.value)

    @pytest.mark.parametrize(
        ("kind", "value", "where"),
        [
            (int, "5", "$.value"),
            (list[Point], [Point(1), {"x": "1"}], "$.value[1].x"),
            (list[Line], [{"sku": "a", "price": 1}, {"sku": "b"}], "$.value[1]"),
            (dict[str, Basket], {"b": {"owner": 5}}, "$.value[...].owner"),
        ],
    )
    async def test_the_error_names_the_path_of_the_invalid_value(
        self, app: App, kind: Any, value: Any, where: str
    ) -> None:
        job_type, _ = echo(app, kind)
        with pytest.raises(Invalid) as refused:
            await job_type.enqueue(value)
        assert f"`{where}`" in str(refused.value)

    async def test_a_call_that_does_not_match_the_signature_is_refused(self, app: App) -> None:
        @app.job()
        async def mail(to: str, **fields: int) -> None: ...

        @app.job()
        async def closed(to: str) -> None: ...

        calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
            (closed, (), {}, "`to`"),
            (closed, ("a",), {"from_": "b"}, "from_"),
            (closed, ("a", "b"), {}, "too many positional"),
            (closed, ("a",), {"to": "b"}, "multiple values for argument 'to'"),
            (mail, ("a",), {"size": "x"}, "size"),
        ]
        for job_type, args, kwargs, says in calls:
            with pytest.raises(Invalid, match=says) as refused:
                await job_type.enqueue(*args, **kwargs)
            assert refused.value.code == "invalid_payload"

    def test_an_unsupported_annotation_is_refused_at_definition(self, app: App) -> None:
        def odd(value: Line | Invoice) -> None: ...

        def odd_result() -> Line | int: ...

        for function in (odd, odd_result):
            with pytest.raises(Invalid, match="union") as refused:
                app.job()(function)
            assert refused.value.code == "invalid_handler"


class TestNotJson:
    @pytest.mark.parametrize(
        ("value", "code"),
        [
            (float("nan"), "payload_not_json"),
            (float("inf"), "payload_not_json"),
            ([{"deep": float("nan")}], "payload_not_json"),
            (2**70, "payload_not_json"),
            ("\ud800", "payload_not_json"),
            ("nul \x00", "payload_not_json"),
            ("x" * PAYLOAD_BYTES_MAX, "payload_too_large"),
        ],
    )
    async def test_a_payload_that_cannot_be_stored_is_refused(self, app: App, value: Any, code: str) -> None:
        job_type, _ = echo(app, Any)
        with pytest.raises(Invalid) as refused:
            await job_type.enqueue(value)
        assert refused.value.code == code
        assert await jobs_in(app) == 0

    async def test_a_result_that_cannot_be_stored_fails_the_job_permanently(self, app: App) -> None:
        """The work is done, and doing it again would end the same way."""
        results = {
            "nan": (float("nan"), "result_not_json"),
            "object": (object(), "result_not_json"),
            "set of objects": ([{object()}], "result_not_json"),
            "large": ("x" * RESULT_BYTES_MAX, "result_too_large"),
        }

        @app.job()
        async def returns(name: str) -> Any:
            return results[name][0]

        jobs = {name: await returns.enqueue(name) for name in results}
        assert await drained(app) == len(results)
        for name, (_, code) in results.items():
            with pytest.raises(JobFailed) as failed:
                await jobs[name].result(60)
            assert (name, failed.value.code) == (name, code)
            assert (await jobs[name].get()).state is State.DEAD

    async def test_a_result_that_does_not_match_its_annotation_fails_the_job_permanently(self, app: App) -> None:
        @app.job()
        async def promises() -> Point:
            return {"y": 1}  # type: ignore[return-value]

        job = await promises.enqueue()
        await drained(app)
        with pytest.raises(JobFailed, match="missing required field `x`") as failed:
            await job.result(60)
        assert failed.value.code == "invalid_result"

    async def test_an_outcome_in_the_return_annotation_is_not_part_of_the_result_type(self, app: App) -> None:
        @app.job()
        async def sometimes() -> Point | Snooze:
            return Point(1)

        job = await sometimes.enqueue()
        await drained(app)
        assert await job.result(60) == Point(1)

    async def test_a_stored_payload_that_does_not_match_the_signature_fails_permanently(self, app: App) -> None:
        """Created over HTTP or by an older release, without a check."""

        @app.job()
        async def mail(to: str) -> None: ...

        from holdfast.model import NewJob

        [made] = await app.create([NewJob(type="mail", payload={"to": 5})])
        await drained(app)
        with pytest.raises(JobFailed, match=r"Expected `str`, got `int` - at `\$.to`") as failed:
            await app.job_handle(made.id).result(60)
        assert failed.value.code == "invalid_payload"
