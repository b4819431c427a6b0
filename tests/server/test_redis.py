"""Servers share a job cache and notifications through Redis; losing it costs only time (S13)."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest
import redis

from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.redis_connection import connect
from holdfast.dispatch.redis_status import COPY_BYTES_MAX, StatusCache, key_of
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.model.reports import Progress
from holdfast.model.summary import JobSummary
from holdfast.server.live import feed as feeds
from holdfast.settings import Settings
from tests.server.steps import Served, bearer, client_key, serving
from tests.servers.redis import RedisServer
from tests.worker.in_process import until

UNKNOWN = "0198c0de-0000-7000-8000-000000000000"


@pytest.fixture
async def served(store_url: str, redis_server: RedisServer) -> AsyncIterator[Served]:
    async with serving(store_url, redis_url=redis_server.url, redis_cache_seconds=60) as served:
        yield served


@pytest.fixture
async def other(served: Served, store_url: str, redis_server: RedisServer) -> AsyncIterator[Served]:
    """A second server before the same database."""
    async with serving(store_url, redis_url=redis_server.url, redis_cache_seconds=60) as served:
        yield served


@pytest.fixture
async def small(fresh_sqlite_url: str, redis_server: RedisServer) -> AsyncIterator[Served]:
    """A server on one store, for what has nothing to do with the store."""
    async with serving(fresh_sqlite_url, redis_url=redis_server.url, redis_cache_seconds=60) as served:
        yield served


@pytest.fixture
def asked(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the first server's database was asked for."""
    asked: list[Any] = []
    original = served.server.summaries._send

    async def noted(wanted: list[Any]) -> Any:
        asked.extend(wanted)
        return await original(wanted)

    monkeypatch.setattr(served.server.summaries, "_send", noted)
    return asked


async def created(served: Served, **job: Any) -> str:
    answer = await served.http.post("/jobs", json={"jobType": "t", "payload": {}, **job})
    assert answer.status_code == 202
    return str(answer.json()["jobId"])


async def view(served: Served, job_id: str, **headers: str) -> Any:
    answer = await served.http.get(f"/jobs/{job_id}", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def copied(served: Served, server: RedisServer, job_id: str, **headers: str) -> None:
    """A copy that Redis did not take in time is made the next time that the job is asked after."""

    async def is_copied() -> bool:
        return bool(server.say("GET", key_of(job_id))) or not await view(served, job_id, **headers)

    await until(is_copied)


async def as_stored(served: Served, job_id: str) -> Any:
    """What a server without a cache would say."""
    [outline] = await served.engine.reads.summaries([(job_id, "default")])
    from holdfast.server.api.views import job_view

    assert isinstance(outline, JobSummary)
    return json.loads(msgspec.json.encode(job_view(outline)))


# -- copies -----------------------------------------------------------------------------------------------------------


async def test_a_repeated_read_is_served_from_the_cache(
    served: Served, other: Served, redis_server: RedisServer, asked: list[Any]
) -> None:
    """R002-45, C-20. With the same ETag, and on any server."""
    job_id = await created(served)
    first = await served.http.get(f"/jobs/{job_id}")
    await copied(served, redis_server, job_id)

    async def answered_from_copies() -> bool:
        asked.clear()
        again = await served.http.get(f"/jobs/{job_id}")
        elsewhere = await other.http.get(f"/jobs/{job_id}", headers={"if-none-match": first.headers["etag"]})
        assert (again.json(), again.headers["etag"]) == (first.json(), first.headers["etag"])
        assert elsewhere.status_code == 304
        return not asked

    await until(answered_from_copies)


async def test_the_cache_follows_changes_of_the_job(
    served: Served, redis_server: RedisServer, asked: list[Any]
) -> None:
    """Through its whole life, equal to what the database says, and without its being asked by those who ask."""
    job_id = await created(served)
    await view(served, job_id)
    await copied(served, redis_server, job_id)
    engine = served.engine
    worker = (await engine.workers.register(name="tester")).id
    [lease] = await engine.claim(worker)
    await followed(served, job_id, status="RUNNING")
    report = Progress(id=job_id, token=lease.token, percent=40, step="half", counters={"n": 1})
    await engine.progress(worker, report)
    await followed(served, job_id, progress={"percent": 40.0, "step": "half"})
    await engine.complete(worker, job_id, lease.token, {"answer": 42})
    await followed(served, job_id, status="COMPLETED", result={"answer": 42})

    async def answered_from_copies() -> bool:
        asked.clear()
        for _ in range(3):
            await view(served, job_id)
        return not asked

    await until(answered_from_copies)


async def followed(served: Served, job_id: str, **told: Any) -> None:
    async def same() -> bool:
        seen = await view(served, job_id)
        return {**seen, **told} == seen

    await until(same)
    assert await view(served, job_id) == await as_stored(served, job_id)


async def test_a_read_after_a_cancel_shows_the_cancel(served: Served, other: Served, redis_server: RedisServer) -> None:
    job_id = await created(served)
    await view(served, job_id)
    await copied(served, redis_server, job_id)
    await other.http.post(f"/jobs/{job_id}/cancel")
    assert (await view(served, job_id))["status"] == "CANCELED"


async def test_a_cached_job_of_another_tenant_is_not_found(served: Served, redis_server: RedisServer) -> None:
    ours, theirs = await client_key(served, "ours"), await client_key(served, "theirs")
    job_id = (await served.http.post("/jobs", json={"jobType": "t", "payload": {}}, headers=bearer(ours))).json()[
        "jobId"
    ]
    assert (await served.http.get(f"/jobs/{job_id}", headers=bearer(theirs))).status_code == 404
    assert (await served.http.get(f"/jobs/{job_id}", headers=bearer(ours))).status_code == 200
    await copied(served, redis_server, job_id, **bearer(ours))
    for key, expected in ((theirs, 404), (ours, 200), (theirs, 404)):
        assert (await served.http.get(f"/jobs/{job_id}", headers=bearer(key))).status_code == expected
    assert (await served.http.get(f"/jobs/{UNKNOWN}", headers=bearer(ours))).status_code == 404
    assert (await served.http.get("/jobs/nonsense", headers=bearer(ours))).status_code == 404


async def test_prefer_wait_bypasses_the_cache(served: Served, redis_server: RedisServer, asked: list[Any]) -> None:
    job_id = await created(served)
    await view(served, job_id)
    await copied(served, redis_server, job_id)
    asked.clear()
    await view(served, job_id, prefer="wait=1")
    assert asked


async def test_a_forged_cache_entry_is_not_used(small: Served, redis_server: RedisServer) -> None:
    """SEC-23: what is in Redis is not trusted."""
    for forged in (b"", b"x", b"9" * 40 + b"0" * 32 + b'["default",{}]', b"9" * 40, b"\xff" * 300):
        job_id = await created(small)
        redis_server.say("SET", key_of(job_id), forged)
        assert await view(small, job_id) == await as_stored(small, job_id)


async def test_a_cache_entry_is_not_used_for_another_job(small: Served, redis_server: RedisServer) -> None:
    one, two = await created(small), await created(small)
    await view(small, one)
    await copied(small, redis_server, one)
    redis_server.say("COPY", key_of(one), key_of(two))
    assert (await view(small, two))["jobId"] == two


async def test_a_flushed_cache_is_filled_again(small: Served, redis_server: RedisServer) -> None:
    job_id = await created(small)
    for _ in range(3):
        seen = await view(small, job_id)
        await copied(small, redis_server, job_id)
        redis_server.flush()
        assert await view(small, job_id) == seen


async def test_without_redis_the_database_answers(small: Served, redis_server: RedisServer) -> None:
    """Killed, and back with what it had: a change that it missed is not taken back by an old copy."""
    job_id = await created(small)
    before = await view(small, job_id)
    await copied(small, redis_server, job_id)
    redis_server.stop(kill=True)
    assert [await view(small, job_id) for _ in range(20)] == [before] * 20
    redis_server.start()
    await small.http.post(f"/jobs/{job_id}/cancel")
    assert (await view(small, job_id))["status"] == "CANCELED"

    async def copied_again() -> bool:
        assert (await view(small, job_id))["status"] == "CANCELED"
        return bool(redis_server.say("GET", key_of(job_id)))

    await until(copied_again)


@pytest.mark.parametrize("wrong", [{"redis_url": ""}, {"redis_url": "redis://[oops"}])
async def test_an_invalid_redis_setting_is_an_error_at_once(fresh_sqlite_url: str, wrong: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="HOLDFAST_REDIS"):
        async with serving(fresh_sqlite_url, redis_cache_seconds=5, **wrong):
            pass


# -- the cache itself -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def cache_at(url: str, seconds: float = 60, secret: bytes = b"secret") -> AsyncIterator[StatusCache]:
    async def known() -> bytes:
        return secret

    client = connect(url, 4)
    yield StatusCache(client, Breaker(Clock(), Ids()), Clock(), seconds=seconds, secret=known)
    await client.aclose()


async def some_outline(served: Served) -> JobSummary:
    job_id = (await served.engine.create(NewJob(type="t"))).id
    [outline] = await served.engine.reads.summaries([(job_id, "default")])
    assert isinstance(outline, JobSummary)
    return outline


async def test_an_older_version_never_replaces_a_newer_one(served_on_sqlite: Served, redis_server: RedisServer) -> None:
    """By version, in whatever order they come."""
    outline = await some_outline(served_on_sqlite)
    versions = [msgspec.structs.replace(outline, version=version) for version in (3, 1, 2, 10, 9)]
    async with cache_at(redis_server.url) as cache:
        seen = []
        for each in versions:
            await cache.put([("default", each, 60)], Clock().monotonic())
            found = await cache.get(outline.id, "default")
            assert found
            seen.append(found.version)
        assert seen == [3, 3, 3, 10, 10]
        assert await cache.get(outline.id, "other") is None


async def test_a_stale_write_is_not_cached(served_on_sqlite: Served, redis_server: RedisServer) -> None:
    outline = await some_outline(served_on_sqlite)
    async with cache_at(redis_server.url) as cache:
        await cache.put([("default", outline, 60)], Clock().monotonic() - 5)
        assert await cache.get(outline.id, "default") is None


async def test_a_cache_entry_expires(served_on_sqlite: Served, redis_server: RedisServer) -> None:
    outline = await some_outline(served_on_sqlite)
    async with cache_at(redis_server.url) as cache:
        await cache.put([("default", outline, 7)], Clock().monotonic())
        assert 0 < redis_server.say("PTTL", key_of(outline.id)) <= 7000


async def test_large_jobs_are_not_cached(served_on_sqlite: Served, redis_server: RedisServer) -> None:
    outline = await some_outline(served_on_sqlite)
    large = msgspec.structs.replace(outline, version=2, result=json.dumps("x" * COPY_BYTES_MAX))
    async with cache_at(redis_server.url) as cache:
        for each in (outline, large, outline):
            await cache.put([("default", each, 60)], Clock().monotonic())
        assert await cache.get(outline.id, "default") is None
        assert redis_server.say("STRLEN", key_of(outline.id)) < 100


async def test_a_cache_entry_of_another_secret_is_not_used(served_on_sqlite: Served, redis_server: RedisServer) -> None:
    outline = await some_outline(served_on_sqlite)
    async with cache_at(redis_server.url) as cache, cache_at(redis_server.url, secret=b"other") as stranger:
        await cache.put([("default", outline, 60)], Clock().monotonic())
        assert await stranger.get(outline.id, "default") is None


async def test_a_frozen_redis_does_not_delay_requests(served_on_sqlite: Served, redis_server: RedisServer) -> None:
    """Tens of milliseconds at first, and then nothing while the breaker is open."""
    outline = await some_outline(served_on_sqlite)
    async with cache_at(redis_server.url) as cache:
        await cache.put([("default", outline, 60)], Clock().monotonic())
        with redis_server.frozen():
            async with asyncio.timeout(60):  # one that waited for it would wait for ever
                assert [await cache.get(outline.id, "default") for _ in range(5)] == [None] * 5


# -- word of what happens ---------------------------------------------------------------------------------------------


@contextmanager
def listening(server: RedisServer, *patterns: str) -> Iterator[Any]:
    with redis.Redis(port=server.port, socket_timeout=60) as client, client.pubsub() as heard:
        heard.psubscribe(*patterns)
        for _ in patterns:
            heard.get_message(timeout=60)
        yield heard


def said(heard: Any, into: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    while (message := heard.get_message(timeout=0)) is not None:
        into.append((message["channel"].decode(), json.loads(message["data"])))
    return into


async def heard_of(
    servers: list[Served], redis_server: RedisServer, channels: tuple[str, str, str], **job: Any
) -> tuple[str, str, dict[str, Any]]:
    """The job, its worker, and by channel the last of what was said about them."""
    served, words = servers[0], list[tuple[str, Any]]()
    engine = served.engine
    with listening(redis_server, *channels) as heard:
        await until(lambda: redis_server.say("EXISTS", "holdfast:publisher"))
        await until(lambda: any(everything_is_watched(each) for each in servers))
        job_id = await created(served, **job)
        worker = (await engine.workers.register(name="tester")).id
        [lease] = await engine.claim(worker)
        await engine.progress(worker, Progress(id=job_id, token=lease.token, percent=40, step="transcode"))
        await engine.complete(worker, job_id, lease.token, {"secret": 42})
        await until(lambda: len({channel for channel, _ in said(heard, words)}) >= 3)
    assert len([channel for channel, _ in words if "worker" not in channel]) == 2, "each is told once"
    return job_id, worker, dict(words)


async def test_progress_and_completion_are_published_on_the_channels_of_the_subject(
    served: Served, other: Served, redis_server: RedisServer
) -> None:
    """R003-118, R003-119, R003-120: what a worker straight at the database does, too; once, however many servers; no
    result."""
    names = ("worker_status", "transcode_progress:video 7", "transcode_complete:video 7")
    job_id, worker, told = await heard_of(
        [served, other], redis_server, names, subject="video 7", lifecycle="transcode"
    )
    assert set(told) == set(names)
    progress, complete = told["transcode_progress:video 7"], told["transcode_complete:video 7"]
    common = {"jobId": job_id, "jobType": "t", "subject": "video 7", "tenant": "default"}
    assert progress == {**progress, **common, "status": "RUNNING", "percent": 40.0, "step": "transcode"}
    assert complete == {**common, "status": "COMPLETED", "seq": complete["seq"], "at": complete["at"]}
    assert told["worker_status"]["workerId"] == worker


async def test_a_job_without_a_subject_is_published_by_id_and_channels_can_have_a_prefix(
    fresh_sqlite_url: str, redis_server: RedisServer
) -> None:
    """R003-119, R003-120. A prefix is no pattern, whatever letters it has."""
    async with serving(fresh_sqlite_url, redis_url=redis_server.url, redis_channel_prefix="[s]*:") as served:
        patterns = (r"\[s\]\*:worker_status", r"\[s\]\*:transcode_progress:*", r"\[s\]\*:transcode_complete:*")
        job_id, _, told = await heard_of([served], redis_server, patterns)
    assert set(told) == {f"[s]*:{name}" for name in ("worker_status", *channels_of(job_id))}


def channels_of(name: str) -> tuple[str, str]:
    return f"transcode_progress:{name}", f"transcode_complete:{name}"


async def test_a_canceled_job_is_published_on_the_completion_channel(small: Served, redis_server: RedisServer) -> None:
    """R003-120."""
    words: list[tuple[str, Any]] = []
    with listening(redis_server, "transcode_complete:*") as heard:
        await until(lambda: everything_is_watched(small))
        job_id = await created(small)
        await small.http.post(f"/jobs/{job_id}/cancel")
        await until(lambda: said(heard, words))
    [(channel, told)] = words
    assert (channel, told["status"]) == (f"transcode_complete:{job_id}", "CANCELED")


async def test_a_subscription_to_one_channel_receives_its_messages(
    fresh_sqlite_url: str, redis_server: RedisServer
) -> None:
    """Not only patterns count: the server asks Redis for channels with the literal prefix."""
    words: list[tuple[str, Any]] = []
    async with serving(fresh_sqlite_url, redis_url=redis_server.url, redis_channel_prefix="[s]*:") as served:
        with redis.Redis(port=redis_server.port, socket_timeout=60) as client, client.pubsub() as heard:
            heard.subscribe("[s]*:transcode_complete:order 7")
            heard.get_message(timeout=60)
            await until(lambda: everything_is_watched(served))
            job_id = await created(served, subject="order 7")
            await served.http.post(f"/jobs/{job_id}/cancel")
            await until(lambda: said(heard, words))
    assert words[0][1]["jobId"] == job_id


def everything_is_watched(served: Served) -> bool:
    return bool(served.server.feed._watchers.get(feeds.EVERYTHING))


async def test_without_subscribers_the_log_is_not_read(small: Served, redis_server: RedisServer) -> None:
    job_id = await created(small)
    await small.http.post(f"/jobs/{job_id}/cancel")
    await asyncio.sleep(1.5)
    assert not redis_server.say("EXISTS", "holdfast:publisher")
    assert not everything_is_watched(small)


async def test_a_change_at_one_server_is_visible_at_another_at_once(
    served: Served, other: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who watches at another server need not wait for its next look, which here would come much too late."""
    monkeypatch.setattr(feeds, "IDLE_SECONDS", 3600.0)
    job_id = await created(served)
    watch = await other.server.feed.watch(feeds.of_job(job_id))
    try:
        await asyncio.sleep(0.5)  # it looks, finds nothing and goes to sleep

        async def told() -> bool:
            await created(served)  # on PostgreSQL an event may be seen a moment after its commit only
            return await watch.wait(Clock(), 0.5)

        await served.http.post(f"/jobs/{job_id}/cancel")
        await until(told)
    finally:
        other.server.feed.leave(watch)


async def test_a_server_starts_without_redis(fresh_sqlite_url: str, redis_server: RedisServer) -> None:
    redis_server.stop(kill=True)
    async with serving(fresh_sqlite_url, redis_url=redis_server.url, redis_cache_seconds=60) as served:
        job_id = await created(served)
        assert (await view(served, job_id))["status"] == "PENDING"


async def test_a_server_has_ten_connections_to_redis_at_most(redis_server: RedisServer) -> None:
    """R003-145."""
    pooled = connect(f"{redis_server.url}?client_name=pooled", Settings().redis_pool_size)

    def connections() -> int:
        return str(redis_server.say("CLIENT", "LIST")).count("name=pooled")

    waiting = [asyncio.create_task(pooled.execute_command("BLPOP", f"nothing {n}", 1)) for n in range(25)]
    await until(lambda: connections() >= 10)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert connections() == 10
    await pooled.aclose()
