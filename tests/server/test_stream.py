"""Streams of events: of one job, of all, of everything for operators. Which events, in which form, and for whom."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.engine import Engine, Progress
from holdfast.errors import StoreUnavailable
from holdfast.model import NewJob
from holdfast.model.key import Kind, NewKey
from holdfast.server.api import streams
from holdfast.server.http import endpoint
from tests.logs import logged
from tests.server.event_reader import Watching, watching
from tests.server.steps import ADMIN, Served, bearer, serving


async def finish(engine: Engine, worker: str, job_type: str) -> None:
    [lease] = await engine.claim(worker, types=[job_type])
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, step="half", percent=50, counters={"n": 1}))
    await engine.complete(worker, lease.id, lease.token, {"ok": True})


@pytest.fixture
async def worker(served: Served) -> str:
    return (await served.engine.workers.register(name="tester")).id


async def key_of(served: Served, tenant: str, kind: Kind = Kind.CLIENT) -> str:
    made = await served.engine.keys.create(NewKey(kind=kind, tenant=tenant))
    return made.text


async def until(happened: Callable[[], bool]) -> None:
    for _ in range(3000):
        if happened():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


async def until_open(served: Served, streams: int) -> None:
    await until(lambda: served.server.streams.total() == streams)


class TestOfOneJob:
    async def test_a_finished_job_is_replayed_from_its_first_event_and_then_the_stream_ends(
        self, served: Served, worker: str
    ) -> None:
        """R003-56, R003-64, R003-119, R003-120."""
        job = await served.engine.create(NewJob(type="mail"))
        await finish(served.engine, worker, "mail")
        async with watching(served, f"/jobs/{job.id}/events") as reader:
            said = await reader.rest()
        assert [(each.id, each.name, each.data["verb"]) for each in said] == [
            ("1", "create", "create"),
            ("2", "claim", "claim"),
            ("3", "progress", "progress"),
            ("4", "complete", "complete"),
        ]
        assert [each.data["status"] for each in said] == ["PENDING", "RUNNING", "RUNNING", "COMPLETED"]
        assert said[2].data["percent"] == 50
        assert (said[2].data["step"], said[2].data["counters"]) == ("half", {"n": 1})

    async def test_new_events_are_sent_at_once(self, served: Served, worker: str) -> None:
        job = await served.engine.create(NewJob(type="mail"))
        async with watching(served, f"/jobs/{job.id}/events") as reader:
            assert (await reader.next()).data["verb"] == "create"
            await finish(served.engine, worker, "mail")
            assert [each.data["verb"] for each in await reader.rest()] == ["claim", "progress", "complete"]

    async def test_events_have_the_status_names_of_the_lifecycle_and_no_internals(
        self, served: Served, worker: str
    ) -> None:
        job = await served.engine.create(NewJob(type="t", lifecycle="orchestration", payload={"secret": "canary"}))
        [lease] = await served.engine.claim(worker, types=["t"])
        await served.engine.fail(worker, lease.id, lease.token, "E_X", "canary", context={"trace": "canary"})
        async with watching(served, f"/jobs/{job.id}/events", last="2") as reader:
            claimed, failed = await reader.next(), await reader.next()
        assert (claimed.data["from"], claimed.data["to"]) == ("QUEUED", "RUNNING")
        assert (failed.data["from"], failed.data["to"], failed.data["reason"]) == ("RUNNING", "RETRY", "E_X")
        for said in (claimed, failed):
            assert "canary" not in said.raw
            assert worker not in said.raw
            assert not said.data.keys() & {"attempt", "epoch", "workerId", "actor", "data", "tenant"}

    async def test_a_stream_resumes_after_the_last_event_id(self, served: Served, worker: str) -> None:
        job = await served.engine.create(NewJob(type="mail"))
        await finish(served.engine, worker, "mail")
        async with watching(served, f"/jobs/{job.id}/events", last="2") as reader:
            assert [each.id for each in await reader.rest()] == ["3", "4"]

    async def test_a_client_that_has_seen_the_last_event_gets_204(self, served: Served, worker: str) -> None:
        job = await served.engine.create(NewJob(type="mail"))
        await finish(served.engine, worker, "mail")
        answer = await served.http.get(f"/jobs/{job.id}/events", headers={"Last-Event-ID": "4"})
        assert answer.status_code == 204

    async def test_unknown_jobs_and_jobs_of_other_tenants_are_not_found(self, served: Served) -> None:
        theirs = await served.engine.create(NewJob(type="t", tenant="them"))
        unknown = theirs.id[:-4] + "0000"
        answers = [await served.http.get(f"/jobs/{job_id}/events") for job_id in (theirs.id, unknown, "x")]
        assert [(each.status_code, each.json()["code"]) for each in answers] == [(404, "job_not_found")] * 3

    async def test_an_invalid_last_event_id_is_rejected(self, served: Served) -> None:
        job = await served.engine.create(NewJob(type="t"))
        for last in ("-1", "x", "1e3", "9" * 20, "\u0661"):
            answer = await served.http.get(f"/jobs/{job.id}/events", headers={"Last-Event-ID": last.encode()})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor"), last

    async def test_head_returns_the_headers_at_once(self, served: Served) -> None:
        job = await served.engine.create(NewJob(type="t"))
        answer = await served.http.head(f"/jobs/{job.id}/events")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
        await until_open(served, 0)

    async def test_a_text_with_line_breaks_is_one_event(self, served: Served, worker: str) -> None:
        """SEC-37: CR and LF in data cannot forge events."""
        job = await served.engine.create(NewJob(type="t"))
        [lease] = await served.engine.claim(worker, types=["t"])
        forged = "a\n\nid: 9\nevent: complete\ndata: {}\r\n\r\nb\u2028c"
        await served.engine.progress(worker, Progress(id=lease.id, token=lease.token, counters={forged: forged}))
        async with watching(served, f"/jobs/{job.id}/events", last="2") as reader:
            said = await reader.next()
        assert (said.id, said.name, said.data["counters"]) == ("3", "progress", {forged: forged})


class TestOfAll:
    async def test_a_stream_of_all_jobs_starts_at_the_present(self, served: Served, worker: str) -> None:
        await served.engine.create(NewJob(type="before"))
        async with watching(served, "/events") as reader:
            await reader.block()
            job = await served.engine.create(NewJob(type="mail"))
            await finish(served.engine, worker, "mail")
            said = [await reader.next() for _ in range(4)]
        assert [each.event for each in said] == [(job.id, seq) for seq in (1, 2, 3, 4)]
        assert {each.data["jobType"] for each in said} == {"mail"}

    async def test_a_client_disconnected_before_its_first_event_misses_nothing(self, served: Served) -> None:
        async with watching(served, "/events") as reader:
            first = await reader.block()
        assert first.id
        job = await served.engine.create(NewJob(type="t"))
        async with watching(served, "/events", last=first.id) as reader:
            assert (await reader.next()).event == (job.id, 1)

    async def test_a_stream_is_filtered(self, served: Served) -> None:
        async with watching(served, "/events?jobType=mail&queue=fast") as reader:
            await reader.block()
            for job_type, queue in (("mail", "slow"), ("other", "fast"), ("mail", "fast")):
                await served.engine.create(NewJob(type=job_type, queue=queue, tags=[queue]))
            said = await reader.next()
        [wanted] = [job for job in (await served.engine.reads.page()).jobs if (job.type, job.queue) == ("mail", "fast")]
        assert said.event == (wanted.id, 1)

    async def test_each_tenant_sees_only_its_own_events(self, served: Served) -> None:
        ours, theirs = await key_of(served, "us"), await key_of(served, "them")
        async with (
            watching(served, "/events", headers=bearer(ours)) as we,
            watching(served, "/events", headers=bearer(theirs)) as they,
        ):
            await we.block(), await they.block()
            jobs = {tenant: await served.engine.create(NewJob(type="t", tenant=tenant)) for tenant in ("them", "us")}
            assert (await we.next()).event == (jobs["us"].id, 1)
            assert (await they.next()).event == (jobs["them"].id, 1)

    @pytest.mark.parametrize("last", ["x", "1.2", "1.1.x", "9" * 19 + ".1." + "0" * 36, "-1.1." + "0" * 36])
    async def test_an_invalid_last_event_id_is_rejected(self, served: Served, last: str) -> None:
        answer = await served.http.get("/events", headers={"Last-Event-ID": last})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor")

    async def test_a_client_that_reconnects_late_gets_all_events(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.server.live.event_buffer.ENTRIES_MAX", 50)
        async with watching(served, "/events") as reader:
            start = (await reader.block()).id
        made = await served.engine.create_many([NewJob(type="t") for _ in range(250)])
        more = await served.engine.create_many([NewJob(type="t", tenant="them") for _ in range(1000)])
        last = await served.engine.create(NewJob(type="t"))
        async with watching(served, "/events", last=start) as reader:
            said = [await reader.next() for _ in range(251)]
        assert sorted(each.data["jobId"] for each in said[:250]) == sorted(job.id for job in made)
        assert said[250].data["jobId"] == last.id
        assert len(more) == 1000


class TestForOperators:
    async def test_operators_see_all_events_of_all_tenants(self, served: Served, worker: str) -> None:
        async with watching(served, "/api/admin/events", headers=ADMIN) as reader:
            await reader.block()
            job = await served.engine.create(NewJob(type="t", tenant="them", queue="q"))
            [lease] = await served.engine.claim(worker, types=["t"])
            await served.engine.fail(worker, lease.id, lease.token, "E_X", "broken", permanent=True)
            said = [await _next_of(reader, "create", "claim", "fail") for _ in range(3)]
        assert [each.event for each in said] == [(job.id, 1), (job.id, 2), (job.id, 3)]
        data = said[2].data
        assert (data["tenant"], data["queue"], data["attempt"], data["workerId"]) == ("them", "q", 1, worker)
        assert (data["actor"], data["data"]["message"]) == ("worker", "broken")

    async def test_operators_can_filter_by_tenant(self, served: Served) -> None:
        async with watching(served, "/api/admin/events?tenant=us", headers=ADMIN) as reader:
            await reader.block()
            for tenant in ("them", "us"):
                await served.engine.create(NewJob(type="t", tenant=tenant))
            assert (await _next_of(reader, "create")).data["tenant"] == "us"

    async def test_only_operators_receive_worker_events(self, served: Served) -> None:
        """R003-118, R003-121: online, busy, idle, disabled and offline, each once."""
        async with (
            watching(served, "/api/admin/events", headers=ADMIN) as reader,
            watching(served, "/events") as client,
        ):
            await reader.block(), await client.block()
            worker = await served.engine.workers.register(name="w")
            said = [await _next_of(reader, "worker_status")]
            await served.engine.workers.disable(worker.id)
            said.append(await _next_of(reader, "worker_status"))
            job = await served.engine.create(NewJob(type="t"))
            assert (await client.next()).event == (job.id, 1), "and nothing of any worker before it"
        assert [(each.data["status"], each.data.get("was")) for each in said] == [
            ("online", None),
            ("disabled", "online"),
        ]
        assert {(each.data["workerId"], each.data["name"]) for each in said} == {(worker.id, "w")}

    async def test_clients_cannot_read_the_operator_stream(self, served: Served) -> None:
        answer = await served.http.get("/api/admin/events")
        assert answer.status_code in (401, 403)


async def _next_of(reader: Watching, *names: str):
    while (said := await reader.next()).name not in names:
        continue
    return said


class TestForm:
    async def test_a_stream_starts_with_the_retry_interval_and_sends_heartbeats(self, store_url: str) -> None:
        """R003-123: both can be set."""
        async with serving(store_url, sse_heartbeat_seconds=0.05, sse_retry_seconds=1.5) as served:
            job = await served.engine.create(NewJob(type="t"))
            async with watching(served, f"/jobs/{job.id}/events") as reader:
                assert (await reader.block()).raw == "retry: 1500"
                assert (await reader.block()).data["verb"] == "create"
                assert (await reader.block()).raw == ":"

    async def test_a_heartbeat_has_the_position_in_the_log(self, store_url: str) -> None:
        async with serving(store_url, sse_heartbeat_seconds=0.05) as served, watching(served, "/events") as reader:
            start = (await reader.block()).id
            for _ in range(3):
                theirs = await served.engine.create(NewJob(type="t", tenant="them"))
            async with asyncio.timeout(60):
                while (said := await reader.block()).id == start:
                    continue
            assert said.data is None
            assert theirs.id not in said.raw
            async with watching(served, "/events", last=said.id) as again:
                ours = await served.engine.create(NewJob(type="t"))
                assert (await again.next()).event == (ours.id, 1)

    async def test_the_headers_disable_proxy_buffering(self, served: Served) -> None:
        async with watching(served, "/events") as reader:
            assert reader.answer.headers["cache-control"] == "no-store"
            assert reader.answer.headers["x-accel-buffering"] == "no"


class TestLimits:
    async def test_the_streams_of_a_key_are_limited(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        """SEC-37."""
        monkeypatch.setattr(streams, "STREAMS_PER_KEY", 2)
        mine, other = bearer(await key_of(served, "us")), bearer(await key_of(served, "us"))
        async with watching(served, "/events", headers=mine), watching(served, "/events", headers=mine):
            refused = await served.http.get("/events", headers=mine)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert int(refused.headers["retry-after"]) >= 1
            async with watching(served, "/events", headers=other):
                await until_open(served, 3)
        await until_open(served, 0)
        async with watching(served, "/events", headers=mine):
            pass

    async def test_the_streams_of_a_server_are_limited(self, store_url: str) -> None:
        async with serving(store_url, sse_streams_max=2) as served:
            async with watching(served, "/events"), watching(served, "/events"):
                assert (await served.http.get("/events")).json()["code"] == "too_many_streams"
            await until_open(served, 0)

    async def test_revoking_a_key_ends_its_streams(self, served: Served) -> None:
        """SEC-4: within 5 s, also where nothing happens."""
        made = await served.engine.keys.create(NewKey(kind=Kind.CLIENT, tenant="us"))
        other = await key_of(served, "us")
        async with (
            watching(served, "/events", headers=bearer(made.text)) as reader,
            watching(served, "/events", headers=bearer(other)) as spared,
        ):
            await reader.block()
            await served.engine.keys.revoke(made.key.id)
            assert await reader.next() is None
            job = await served.engine.create(NewJob(type="t", tenant="us"))
            assert (await spared.next()).event == (job.id, 1)

    async def test_a_database_outage_ends_no_stream(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streams, "CHECK_SECONDS", 0.01)
        asked = []

        async def away(caller: object) -> None:
            asked.append(caller)
            raise StoreUnavailable("away")

        async with watching(served, "/events") as reader:
            await reader.block()
            with monkeypatch.context() as while_away:
                while_away.setattr(served.server.auth, "check_still_valid", away)
                await until(lambda: len(asked) >= 3)
            job = await served.engine.create(NewJob(type="t"))
            assert (await reader.next()).event == (job.id, 1)

    async def test_a_client_that_reads_nothing_is_disconnected_and_delays_no_other(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """F39."""
        monkeypatch.setattr(endpoint, "SEND_SECONDS_MAX", 0.3)
        host, port = served.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.transport.pause_reading()
        writer.write(b"GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        async with watching(served, "/events") as awake:
            await until_open(served, 2)
            await awake.block()
            made = 0
            async with asyncio.timeout(60):
                while served.server.streams.total() == 2:
                    jobs = [NewJob(type="t" * 200, tags=["x"]) for _ in range(1000)]
                    await served.engine.create_many(jobs)
                    made += len(jobs)
                    for _ in range(len(jobs)):
                        assert (await awake.next()).data["verb"] == "create"
            assert made < 200_000
        writer.close()
        assert reader


async def test_streams_end_when_the_server_stops(store_url: str) -> None:
    async with serving(store_url) as served:
        async with watching(served, "/events") as reader:
            await reader.block()
            served.server.stop()
            assert await reader.next() is None
        await until_open(served, 0)


async def test_a_stream_requested_while_the_server_stops_ends_without_error(
    served_on_sqlite: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served_on_sqlite.server.stop()
    answer = await served_on_sqlite.http.get("/events")
    assert (answer.status_code, answer.text) == (200, "")
    assert logged(caplog) == []


class TestChanged:
    async def test_a_subscription_receives_changes_of_its_job_only(self, served: Served) -> None:
        job, other = [await served.engine.create(NewJob(type="t")) for _ in range(2)]
        async with watching(served, "/events") as reader:
            await reader.block()
            waiting = asyncio.create_task(served.server.feed.changed(job.id, 30, seen=1))
            await served.engine.cancel(other.id)
            assert (await reader.next()).event == (other.id, 2)
            assert not waiting.done()
            await served.engine.cancel(job.id)
            assert await waiting

    async def test_a_subscription_does_not_wait_for_past_changes(self, served: Served) -> None:
        job = await served.engine.create(NewJob(type="t"))
        await served.engine.cancel(job.id)
        assert await served.server.feed.changed(job.id, 30, seen=1)

    async def test_a_subscription_waits_until_its_timeout(self, served: Served) -> None:
        job = await served.engine.create(NewJob(type="t"))
        assert not await served.server.feed.changed(job.id, 0, seen=1)
