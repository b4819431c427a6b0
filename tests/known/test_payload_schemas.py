"""A job that no worker could run is refused at creation, by its job type or by its payload."""

import asyncio
import datetime
import decimal
import enum
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
import msgspec
import pydantic
import pytest

from holdfast import App
from holdfast.assembly.engine import open_engine
from holdfast.cli.serve import server_of
from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import Invalid
from holdfast.model import JobType, NewJob
from holdfast.model.payload_schema import check_of
from holdfast.settings import Settings
from tests.cli.background import Background
from tests.cli.processes import holdfast
from tests.server.steps import Served, serving
from tests.worker.real_processes.harness import eventually


class Colour(enum.Enum):
    RED = "red"


class Line(msgspec.Struct):
    price: int


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(alias="road")
    next: "Address | None" = None


class Order(pydantic.BaseModel):
    address: Address
    gift: bool = False


app = App()


@app.job()
async def bill(user_id: int, lines: list[Line], note: str = "") -> None: ...


@app.job()
async def ship(order: Order, by: Literal["air", "sea"] = "sea") -> None: ...


@app.job()
async def anything(**more: int) -> None: ...


@app.job()
async def varied(
    price: decimal.Decimal,
    at: datetime.datetime | None = None,
    ident: uuid.UUID | None = None,
    pair: tuple[int, str] = (0, ""),
    colour: Colour = Colour.RED,
    raw: bytes = b"",
    few: Annotated[list[int], msgspec.Meta(max_length=2)] = [],  # noqa: B006
    by_number: dict[int, float] = {},  # noqa: B006
    free: Any = None,
) -> None: ...


TYPES = [handler.job_type for handler in app.handlers.values()]
ADDRESS = {"road": "High Street", "next": {"road": "Low Street"}}

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("bill", {"user_id": 1, "lines": [{"price": 2}], "note": "hi"}),
    ("bill", {"user_id": 1, "lines": []}),
    ("ship", {"order": {"address": ADDRESS}, "by": "air"}),
    ("anything", {}),
    ("anything", {"a": 1, "b": 2}),
    ("varied", {"price": "1.50"}),
    ("varied", {"price": 1.5, "at": "2026-01-01T00:00:00", "ident": str(uuid.UUID(int=1)), "pair": [1, "a"]}),
    ("varied", {"price": 1, "colour": "red", "raw": "aGk=", "few": [1], "by_number": {"1": 1.5}, "free": [{}]}),
]
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("bill", {"user_id": "one", "lines": []}, "user_id"),
    ("bill", {"lines": []}, "user_id"),
    ("bill", {"user_id": 1, "lines": [{"price": 1}, {"price": None}]}, "lines[1].price"),
    ("bill", {"user_id": 1, "lines": [], "notes": "typo"}, "notes"),
    ("ship", {"order": {"address": {"next": ADDRESS}}}, "order.address.road"),
    ("ship", {"order": {"address": {"road": "a", "next": {"road": 5}}}}, "order.address.next"),
    ("ship", {"order": {"address": ADDRESS}, "by": "rail"}, "by"),
    ("anything", {"a": 1, "b": "two"}, "b"),
    ("varied", {"price": 1, "few": [1, 2, 3]}, "few"),
    ("varied", {"price": 1, "colour": "blue"}, "colour"),
]


@pytest.mark.parametrize(("job_type", "payload"), GOOD)
def test_the_schema_accepts_every_payload_that_the_handler_accepts(job_type: str, payload: dict[str, Any]) -> None:
    handler = app.handlers[job_type]
    handler.signature.arguments(payload)
    assert handler.job_type.schema is not None
    check_of(job_type, msgspec.json.decode(handler.job_type.schema))(payload)


@pytest.mark.parametrize(("job_type", "payload", "field"), BAD)
def test_a_payload_that_contradicts_the_annotations_is_refused_with_the_field(
    job_type: str, payload: dict[str, Any], field: str
) -> None:
    handler = app.handlers[job_type]
    with pytest.raises(Invalid):
        handler.signature.arguments(payload)
    with pytest.raises(Invalid) as refused:
        check_of(job_type, msgspec.json.decode(handler.job_type.schema or ""))(payload)
    assert refused.value.code == "invalid_payload"
    assert refused.value.fields["field"] == field
    assert f"`{field}`" in refused.value.message


def test_all_errors_of_a_payload_are_reported_together() -> None:
    with pytest.raises(Invalid) as refused:
        check_of("bill", msgspec.json.decode(app.handlers["bill"].job_type.schema or ""))({"user": 1, "note": 2})
    assert all(f"`{field}`" in refused.value.message for field in ("user", "user_id", "lines", "note"))


def test_a_schema_with_a_remote_reference_is_refused() -> None:
    with pytest.raises(Invalid, match="not a JSON Schema"):
        check_of("x", {"$ref": "http://127.0.0.1:1/schema.json"})


@pytest.fixture
async def served(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    async with serving(fresh_sqlite_url) as served:
        yield served


async def post(served: Served, job_type: str, payload: dict[str, Any], **more: Any) -> tuple[int, dict[str, Any]]:
    answer = await served.http.post("/jobs", json={"jobType": job_type, "payload": payload, **more})
    return answer.status_code, answer.json()


async def test_a_server_without_the_app_refuses_a_payload_that_the_declared_handler_could_not_take(
    store_url: str,
) -> None:
    async with serving(store_url) as served:
        await served.engine.job_types.declare(*TYPES)
        for job_type, payload in GOOD:
            status, body = await post(served, job_type, payload)
            assert status == 202, body
        for job_type, payload, field in BAD:
            status, body = await post(served, job_type, payload)
            assert (status, body["code"], body["field"]) == (422, "invalid_payload", field), body
        assert (await post(served, "never-declared", {"a": 1}))[0] == 202, "it has no app: anything may be meant"


async def test_a_batch_is_refused_with_the_index_of_the_invalid_job(served: Served) -> None:
    await served.engine.job_types.declare(*TYPES)
    jobs = [{"jobType": job_type, "payload": payload} for job_type, payload in (GOOD[0], BAD[0][:2])]
    answer = await served.http.post("/jobs/batch", json={"jobs": jobs})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_payload")
    assert answer.json()["detail"].startswith("jobs[1]: payload of bill: `user_id`")
    assert (await served.engine.reads.page()).jobs == []


async def test_a_payload_error_does_not_contain_the_value(served: Served) -> None:
    await served.engine.job_types.declare(*TYPES)
    _, body = await post(served, "bill", {"user_id": "a secret", "lines": []})
    assert "a secret" not in str(body)


@pytest.mark.parametrize("levels", [100, 200, 400, 800])
async def test_a_payload_that_is_nested_too_deeply_is_refused(served: Served, levels: int) -> None:
    await served.engine.job_types.declare(*TYPES)
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    status, body = await post(served, "bill", {"user_id": deep, "lines": []})
    assert (status, body["code"]) == (422, "invalid_payload")


async def test_a_repeated_request_returns_its_job_although_the_schema_has_changed(
    served: Served,
) -> None:
    first = await post(served, "bill", {"user": 1}, idempotencyKey="k")
    assert first[0] == 202
    await served.engine.job_types.declare(*TYPES)
    assert await post(served, "bill", {"user": 1}, idempotencyKey="k") == first
    assert (await post(served, "bill", {"user": 1}, idempotencyKey="l"))[0] == 422


async def test_a_request_with_a_freed_key_is_validated(engine: Engine, clock: MovableClock) -> None:
    bad, window = {"user": 1}, {"idempotency": "window", "idempotency_window_seconds": 60}
    requests = [
        NewJob(type="bill", payload=bad, idempotency_key="failed", policy={"idempotency": "until_failed"}),
        NewJob(type="bill", payload=bad, idempotency_key="old", policy=window),
    ]
    [failed, _] = await engine.create_many(requests)
    await engine.job_types.declare(*TYPES)
    await engine.job_types.check(requests, refuse_unknown=True)
    await engine.cancel(failed.id)
    clock.advance(60)
    for request in requests:
        with pytest.raises(Invalid):
            await engine.job_types.check([request], refuse_unknown=True)


async def test_a_server_that_refuses_unknown_types_suggests_the_nearest_and_learns_new_ones(
    store_url: str, engine: Engine
) -> None:
    async with serving(store_url, unknown_job_types="refuse") as served:
        await served.engine.job_types.declare(*TYPES)
        status, body = await post(served, "bil", {"user_id": 1, "lines": []})
        assert (status, body["code"]) == (422, "unknown_job_type")
        assert "did you mean 'bill'?" in body["detail"]
        await engine.job_types.declare(JobType(name="bil"))  # by another process

        async def is_taken() -> bool:
            return (await post(served, "bil", {}))[0] == 202

        await eventually(is_taken)


def test_serve_with_an_app_refuses_unknown_types_and_without_one_accepts_them(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wanted(with_app: bool, **settings: Any) -> str:
        async with server_of(
            Settings(database_url=fresh_sqlite_url, **settings), app if with_app else None, "::1"
        ) as s:
            return s.settings.unknown_job_types

    monkeypatch.setattr("holdfast.server.startup_checks.dev_secret", lambda _: "secret")
    assert asyncio.run(wanted(True)) == "refuse"
    assert asyncio.run(wanted(False)) == "accept"
    assert asyncio.run(wanted(True, unknown_job_types="accept")) == "accept"
    assert asyncio.run(wanted(False, unknown_job_types="refuse")) == "refuse"


def test_the_command_warns_of_an_unknown_type_and_refuses_a_payload_that_contradicts_a_known_one(
    fresh_sqlite_url: str, tmp_path: Path
) -> None:
    async def declare() -> None:
        engine = await open_engine(Settings(database_url=fresh_sqlite_url))
        await engine.job_types.declare(*TYPES)
        await engine.close()

    asyncio.run(declare())
    done = holdfast("jobs", "create", "bil", folder=tmp_path, url=fresh_sqlite_url)
    assert done.returncode == 0
    assert "no app has declared job type 'bil'; did you mean 'bill'?" in done.stderr
    done = holdfast("jobs", "create", "bill", folder=tmp_path, url=fresh_sqlite_url)
    assert done.returncode != 0
    assert "`user_id`" in done.stderr
    done = holdfast("jobs", "create", "anything", folder=tmp_path, url=fresh_sqlite_url)
    assert (done.returncode, done.stderr) == (0, "")


TASKS = """
from holdfast import App

app = App()

@app.job()
async def twice(number: int) -> int:
    return 2 * number
"""


@pytest.mark.slow
@pytest.mark.sqlite
@pytest.mark.parametrize(("options", "status"), [([], 202), (["--app", "tasks:app"], 422)])
def test_dev_accepts_unknown_types_without_an_app_and_validates_with_one(
    tmp_path: Path, options: list[str], status: int
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    with Background("dev", "--quiet", "--port", "0", *options, folder=tmp_path) as dev:
        dev.until_it_says("Ctrl-C stops it")
        found = re.search(r"HTTP API: (http://\S+),", dev.said)
        assert found is not None
        answer = httpx2.post(f"{found[1]}/jobs", json={"jobType": "trice", "payload": {}}, timeout=60)
        assert answer.status_code == status, answer.text
        assert dev.end() == 0
