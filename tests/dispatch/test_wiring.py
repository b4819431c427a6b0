"""The settings pick the broker; servers and workers use it, and none of them depends on it. R003-113, C-20, C-42."""

import asyncio
import sys
from typing import Any

import pytest

from holdfast import App
from holdfast.assembly.engine import AppParts, open_all
from holdfast.assembly.worker import WorkerOptions, work
from holdfast.cli import main
from holdfast.dispatch.dispatch import kind_of_worker
from holdfast.errors import Invalid
from holdfast.server.live import long_poll
from holdfast.settings import Settings
from holdfast.worker.runtime import Worker
from tests.dispatch import harness
from tests.dispatch.harness import create_jobs, producer, until
from tests.server.http_worker import hand
from tests.server.steps import serving
from tests.servers.redis import RedisServer


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dispatch": "redis"}, "HOLDFAST_REDIS_URL"),
        ({"dispatch": "hybrid"}, "HOLDFAST_REDIS_URL"),
        ({"dispatch": "nats"}, "HOLDFAST_NATS_URL"),
        ({"dispatch": "redis", "redis_url": "localhost:6379"}, "redis://HOST:PORT/0"),
        ({"dispatch": "redis", "redis_url": "http://:hunter2@localhost"}, "redis://HOST:PORT/0"),
        ({"dispatch": "redis", "redis_url": "redis://:hunter2@localhost:port/0"}, "redis://HOST:PORT/0"),
        ({"dispatch": "redis", "redis_url": "redis://:hunter2@localhost/0?db=x"}, "redis://HOST:PORT/0"),
        ({"dispatch": "redis", "redis_url": "redis://:hunter2@localhost/0?colour=red"}, "redis://HOST:PORT/0"),
        ({"dispatch": "redis", "redis_url": "rediss://:hunter2@localhost/0?ssl_cert_reqs=x"}, "redis://HOST:PORT/0"),
        ({"dispatch": "redis", "redis_url": "redis://:hunter2@localhost/jobs"}, "redis://HOST:PORT/0"),
        ({"dispatch": "nats", "nats_url": "hunter2@localhost"}, "nats://HOST:PORT"),
        ({"dispatch": "nats", "nats_url": "nats://a:4222,redis://hunter2@b"}, "nats://HOST:PORT"),
        ({"dispatch": "sqs", "sqs_endpoint_url": "hunter2"}, "https://HOST:PORT"),
    ],
)
async def test_an_invalid_broker_setting_is_an_error_at_startup(
    settings: dict[str, Any], says: str, fresh_sqlite_url: str
) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        await open_all(Settings(database_url=fresh_sqlite_url, **settings), AppParts())
    assert refused.value.code == "invalid_setting"
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("extra", "settings"),
    [
        ("redis", {"dispatch": "hybrid", "redis_url": "redis://localhost"}),
        ("nats", {"dispatch": "nats", "nats_url": "nats://localhost"}),
        ("sqs", {"dispatch": "sqs"}),
    ],
)
async def test_a_missing_extra_is_named_in_the_error(
    extra: str, settings: dict[str, Any], fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiobotocore" if extra == "sqs" else extra, None)  # as if it were not there
    with pytest.raises(Invalid) as refused:
        await open_all(Settings(database_url=fresh_sqlite_url, **settings), AppParts())
    assert refused.value.code == "extra_missing"
    assert f"pip install 'holdfast[{extra}]'" in str(refused.value)


def test_workers_with_equal_queues_and_types_are_of_one_kind() -> None:
    kinds = {
        kind_of_worker(None, ["a"]),
        kind_of_worker(["q"], ["a"]),
        kind_of_worker([], ["a"]),
        kind_of_worker(["q"], ["a", "b"]),
        kind_of_worker(["q"], ["a"], ["gpu"]),
    }
    assert len(kinds) == 5
    assert kind_of_worker(["q", "p"], ["b", "a"], ["x", "y"]) == kind_of_worker(["p", "q"], ["a", "b"], ["y", "x"])


async def test_a_hint_through_redis_wakes_a_long_poll_on_a_server(
    fresh_postgres_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "POLL_SECONDS", 3600.0)  # nobody looks without a hint
    by_redis = {"dispatch": "redis", "redis_url": redis_server.url}
    async with (
        producer(Settings(database_url=fresh_postgres_url, **by_redis)) as creator,
        serving(fresh_postgres_url, **by_redis) as first,
        serving(fresh_postgres_url, **by_redis) as second,
    ):
        for served in (first, second):
            me = await hand(served)
            dispatch = served.server.dispatch
            assert dispatch
            await until(lambda dispatch=dispatch: dispatch.up)
            waiting = asyncio.create_task(me.claim(waitSeconds=30))
            await asyncio.sleep(0.2)
            made = await create_jobs(creator.engine, 1)
            assert [job["jobId"] for job in await waiting] == made
        assert first.server.dispatch
        await until(lambda: first.server.dispatch and first.server.dispatch.tally["received", "woke"] == 2)


async def test_a_server_is_ready_without_its_broker(fresh_sqlite_url: str) -> None:
    async with serving(fresh_sqlite_url, dispatch="redis", redis_url="redis://127.0.0.1:1/0") as served:
        assert served.server.dispatch
        await until(lambda: served.server.dispatch and served.server.dispatch.breaker.openings)
        await until(lambda: served.server.health.alive)
        assert (await served.http.get("/readyz")).status_code == 200
        answer = await served.http.post("/jobs", json={"jobType": "a", "payload": {}})
        assert answer.status_code == 202
        assert not served.server.dispatch.up


async def test_a_hint_through_redis_wakes_a_worker_process(fresh_postgres_url: str, redis_server: RedisServer) -> None:
    settings = Settings(database_url=fresh_postgres_url, dispatch="redis", redis_url=redis_server.url, poll_seconds=60)
    app = App(settings=settings)

    @app.job("double")
    async def double(number: int) -> int:
        return 2 * number

    stop, ready = asyncio.Event(), list[Worker]()
    async with app:
        working = asyncio.create_task(work(app, WorkerOptions(), stop=stop, on_ready=ready.append))
        await until(lambda: ready or working.done())
        dispatch = await app.dispatch()
        assert dispatch
        await until(lambda: dispatch.up)
        async with producer(settings) as elsewhere:
            for number in range(3):
                await asyncio.sleep(0.3)
                (job,) = await create_jobs(elsewhere.engine, 1, type="double", payload={"number": number})
                assert await app.job_handle(job).result(timeout=60) == 2 * number
        assert dispatch.tally["received", "woke"] >= 1
        stop.set()
        await working


async def test_a_stopped_worker_is_removed_from_its_running_app(
    fresh_postgres_url: str, redis_server: RedisServer
) -> None:
    app = App(settings=Settings(database_url=fresh_postgres_url, dispatch="redis", redis_url=redis_server.url))
    async with app:
        dispatch, rules = await app.dispatch(), (await app.engine()).ctx
        assert dispatch
        before = len(rules.wakers), len(dispatch.breaker.watchers)
        for _ in range(2):
            stop, ready = asyncio.Event(), list[Worker]()
            working = asyncio.create_task(work(app, WorkerOptions(), stop=stop, on_ready=ready.append))
            await until(lambda working=working: dispatch.up or working.done())
            stop.set()
            await working
            assert (len(rules.wakers), len(dispatch.breaker.watchers)) == before
            await until(lambda: redis_server.say("INFO", "clients")["connected_clients"] == 1)  # who asks


async def test_a_job_created_on_the_command_line_wakes_a_worker(
    fresh_postgres_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DISPATCH", "redis")
    monkeypatch.setenv("HOLDFAST_REDIS_URL", redis_server.url)
    settings = Settings(database_url=fresh_postgres_url, dispatch="redis", redis_url=redis_server.url, poll_seconds=60)
    async with harness.mini_worker(settings) as worker:
        await harness.wait_until_idle(worker)
        assert await asyncio.to_thread(main, ["jobs", "create", "a", "--database", fresh_postgres_url]) == 0
        await until(lambda: worker.done)
        assert worker.tally["received", "woke"] == 1
