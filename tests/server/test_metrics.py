"""Metrics of a server: what it shows to whom, that it is true, and that nobody can make it grow or wait."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from holdfast.clock import Clock
from holdfast.engine.reads.queue_stats import QueueDepth, QueueStats
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model import JobType, Liveness, NewJob
from holdfast.model.key import Kind, NewKey
from holdfast.model.limits import Limit
from holdfast.observe.instruments import LABELS_MAX
from holdfast.observe.server_metrics import LIMITS_MAX, OUTCOMES, QUEUES_MAX, STATES, STATUSES, ServerMetrics
from holdfast.server.api import metrics
from holdfast.server.app import ROUTES
from holdfast.store.queries import Query
from tests.engine.limiting import declare, limit
from tests.server.http_worker import hand, held
from tests.server.steps import ADMIN, Served, bearer, serving
from tests.servers.redis import RedisServer
from tests.webhooks.receiver import OK, answer, receiving

DURATION = "http_request_duration_seconds"
SECONDS = (0.1, 0.3, 0.5, 1, 2, 5, 10)
BYTES = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
# R000-53..59, word for word: name, type, labels, buckets.
REQUIRED: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "http_request_duration_seconds": ("histogram", ("method", "route", "status_code"), SECONDS),
    "http_requests_total": ("counter", ("method", "route", "status_code"), ()),
    "upload_size_bytes": ("histogram", ("mime_type",), BYTES),
    "db_query_duration_seconds": ("histogram", ("operation", "table"), SECONDS),
    "db_query_error_total": ("counter", ("operation", "table", "error_code"), ()),
    "external_duration_seconds": ("histogram", ("service", "operation"), SECONDS),
    "external_error_total": ("counter", ("service", "operation", "error_code"), ()),
}


async def scraped(served: Served) -> dict[str, Metric]:
    """What Prometheus makes of it. It knows a counter by its name without `_total`."""
    answer = await served.http.get("/metrics")
    assert answer.status_code == 200
    return read(answer.text)


def read(text: str) -> dict[str, Metric]:
    families = text_string_to_metric_families(text)
    return {f"{one.name}_total" if one.type == "counter" else one.name: one for one in families}


def value(found: dict[str, Metric], name: str, sample: str | None = None, **labels: str) -> float:
    """Of the samples with these labels, the sum."""
    wanted = sample or name
    return sum(
        one.value
        for one in found[name].samples
        if one.name == wanted and labels.items() <= one.labels.items() and "le" not in one.labels
    )


async def until(served: Served, name: str, wanted: float, **labels: str) -> dict[str, Metric]:
    for _ in range(600):
        found = await scraped(served)
        if found[name].samples and value(found, name, **labels) == wanted:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} {labels} did not come to {wanted}")


async def counted(served: Served) -> dict[str, Metric]:
    """Once the jobs have been counted; on a slow machine the first scrape may not wait for it."""
    for _ in range(600):
        found = await scraped(served)
        if value(found, "holdfast_queue_stats_age_seconds") < float("inf"):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("nobody has counted")


# -- the names --------------------------------------------------------------------------------------------------


@pytest.fixture
async def seen(store_url: str) -> AsyncIterator[Served]:
    async with serving(store_url, unsafe_private_webhooks=True) as served:
        yield served


async def test_a_server_exposes_the_specified_metrics(seen: Served) -> None:
    """R000-53..59, R000-72, C-35: after real requests, real jobs and real failures, on a real socket."""
    await seen.http.post("/jobs", json={"jobType": "echo", "payload": {}})
    with pytest.raises(HoldfastError):
        await seen.engine.store.read(lambda tx: tx.all(Query("wrong", "SELECT 1 FROM nowhere")))
    async with receiving() as receiver:
        receiver.answers = [OK, answer(503)]
        await send_two(seen, receiver.url)
    found = await scraped(seen)
    for name, (kind, labels, buckets) in REQUIRED.items():
        family = found[name]
        assert family.type == kind, name
        assert family.samples, f"{name} was not fed"
        assert {frozenset(one.labels) - {"le"} for one in family.samples} == {frozenset(labels)}, name
        bounds = {float(one.labels["le"]) for one in family.samples if "le" in one.labels}
        assert bounds == ({*buckets, float("inf")} if buckets else set()), name


async def send_two(served: Served, url: str) -> None:
    made = await served.http.post("/api/admin/webhooks", json={"url": url, "events": ["job.completed"]}, headers=ADMIN)
    assert made.status_code == 201, made.text
    for _ in range(2):
        await served.http.post(f"/api/admin/webhooks/{made.json()['webhook']['webhookId']}/test", headers=ADMIN)


async def test_every_metric_is_exposed_from_the_first_scrape(served_on_sqlite: Served) -> None:
    """With HELP and TYPE, also what nothing has fed yet."""
    answer = await served_on_sqlite.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    for word in ("HELP", "TYPE"):
        told = [line.split()[2] for line in lines if line.startswith(f"# {word} ")]
        assert len(told) == len(set(told)), "each once"
        assert {*served_on_sqlite.server.metrics.instruments, *REQUIRED, "process_cpu_seconds_total"} <= {*told}
    assert all(len(line.split()) > 4 for line in lines if line.startswith("# HELP "))
    found = read(answer.text)
    assert {one.labels["outcome"] for one in found["holdfast_deliveries_total"].samples} == {*OUTCOMES}
    assert {one.labels["status"] for one in found["holdfast_workers"].samples} == {*STATUSES}


# -- what they say ----------------------------------------------------------------------------------------------


async def test_requests_are_counted_by_route_and_status(served_on_sqlite: Served) -> None:
    http = served_on_sqlite.http
    for _ in range(3):
        await http.get(f"/jobs/{uuid4()}")
    await http.post("/jobs", json={"jobType": "echo", "payload": {"text": "x" * 2000}})
    await http.delete("/jobs")
    found = await scraped(served_on_sqlite)
    asked = {"method": "GET", "route": "/jobs/{jobId}", "status_code": "404"}
    assert value(found, "http_requests_total", **asked) == 3
    assert value(found, DURATION, f"{DURATION}_count", **asked) == 3
    assert value(found, "http_requests_total", route="/jobs", status_code="202") == 1
    assert value(found, "http_requests_total", method="DELETE", route="/jobs", status_code="405") == 1
    assert 2000 < value(found, "upload_size_bytes", "upload_size_bytes_sum", mime_type="application/json") < 3000


async def test_requests_without_a_route_are_counted(fresh_sqlite_url: str) -> None:
    """Else a server that turns everybody away would look idle."""
    async with serving(fresh_sqlite_url, connections_max=1) as served:
        await served.http.get("/livez")  # and stays
        port = int(served.url.rpartition(":")[2])
        for said, status in ((b"no HTTP\r\n\r\n", b"400"), (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"503")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            assert (await reader.readline()).split()[1] == status
            writer.close()
        found = await scraped(served)
    assert value(found, "http_requests_total", route="unknown", method="other", status_code="400") == 1
    assert value(found, "http_requests_total", route="unknown", method="GET", status_code="503") == 1


async def test_job_transitions_are_counted(served: Served) -> None:
    """By the queue that their type names, if they name none; a repeat makes no job."""
    await served.engine.job_types.declare(JobType(name="letter", queue="mail"))
    for key in ("a", "a", "b"):
        await served.http.post("/jobs", json={"jobType": "letter", "payload": {}, "idempotencyKey": key})
    batch = [{"jobType": "letter", "payload": {}, "queue": "slow"}, {"jobType": "other", "payload": {}}]
    await served.http.post("/jobs/batch", json={"jobs": batch})
    found = await scraped(served)
    samples = found["holdfast_jobs_created_total"].samples
    assert {one.labels["queue"]: one.value for one in samples} == {"mail": 2, "slow": 1, "default": 1}


async def test_queue_worker_and_slot_gauges_match_the_database(served: Served, worker: str) -> None:
    await served.engine.heartbeat(worker, [], liveness=Liveness.BUSY, slots=4)
    for tenant in ("acme", "default"):
        await served.engine.create_many([NewJob(type="echo", queue="mail", tenant=tenant) for _ in range(2)])
    await served.engine.create(NewJob(type="echo", queue="mail", delay_seconds=600))
    await served.engine.claim(worker)
    found = await counted(served)
    jobs = {one.labels["state"]: one.value for one in found["holdfast_queue_jobs"].samples}
    assert jobs == {"waiting": 3, "delayed": 1, "paused": 0, "retrying": 0, "created": 0, "running": 1}
    assert value(found, "holdfast_queue_oldest_wait_seconds", queue="mail") > 0
    assert value(found, "holdfast_workers", status="busy") == 1
    assert (value(found, "holdfast_cluster_slots"), value(found, "holdfast_cluster_slots_busy")) == (4, 1)
    assert 0 <= value(found, "holdfast_queue_stats_age_seconds") < 600


async def test_limit_gauges_match_the_database(served: Served, worker: str) -> None:
    await declare(served.engine, "crawl", limit_key="domain", per_key=Limit(1))
    await limit(served.engine, "gpu", concurrency=4)
    await limit(served.engine, "queue:mail", rate="1/min", burst=5)
    jobs = [NewJob(type="crawl", payload={"domain": f"{n}.com"}, limits={"gpu": 1}) for n in range(3)]
    await served.engine.create_many([*jobs, NewJob(type="echo", queue="mail")])
    assert len(await served.engine.claim(worker, limit=9)) == 4
    found = await counted(served)
    shown = {
        name.removeprefix("holdfast_limit_"): {one.labels["limit"]: one.value for one in family.samples}
        for name, family in found.items()
        if name.startswith("holdfast_limit_")
    }
    assert 4 <= shown.pop("tokens").pop("queue:mail") < 5
    assert shown == {
        "units": {"gpu": 3, "key:crawl": 3, "queue:mail": 1},
        "full": {"gpu": 0, "key:crawl": 3, "queue:mail": 0},
        "concurrency": {"gpu": 4, "key:crawl": 1},
        "rate": {"queue:mail": 1 / 60},
    }


async def test_lost_leases_and_stale_writes_are_counted(served: Served) -> None:
    """By itself and in a report with others; the lease of a silent worker is taken, and that is counted too."""
    worker = await hand(served)
    await served.engine.create_many([NewJob(type="echo") for _ in range(3)])
    jobs = await worker.claim(limit=3, instanceId="one")
    assert len(await served.engine.maintenance.reap(gone=["one"])) == 3
    await worker.refused("complete", **held(jobs[0]))
    await worker.told("report", complete=[held(jobs[1])], fail=[{**held(jobs[2]), "errorCode": "E", "message": ""}])
    found = await scraped(served)
    assert value(found, "holdfast_leases_reaped_total") == 3
    assert value(found, "holdfast_stale_writes_rejected_total") == 3


async def test_hooks_that_failed_are_counted_by_extension_and_verb(served: Served) -> None:
    served.engine.ctx.hook_failures["notes", "reap"] += 2
    found = await scraped(served)
    assert value(found, "holdfast_hook_failures_total", extension="notes", verb="reap") == 2


async def test_attempts_of_http_workers_and_lost_ones_have_a_duration(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """R000-49: also where the process died, and where the worker is no program of ours."""
    caplog.set_level("INFO", "holdfast.attempts")
    worker = await hand(served)
    await served.engine.create_many([NewJob(type="echo") for _ in range(3)])
    jobs = await worker.claim(limit=3, instanceId="one")
    await worker.told("complete", **held(jobs[0]))
    await worker.told("fail", **held(jobs[1]), errorCode="E", message="")
    assert len(await served.engine.maintenance.reap(gone=["one"])) == 1
    found = await scraped(served)
    for outcome in ("succeeded", "failed", "lost"):
        sample = "holdfast_attempt_seconds_count"
        assert value(found, "holdfast_attempt_seconds", sample, job_type="echo", outcome=outcome) == 1, outcome
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.attempts"]
    assert [line.rpartition(" after ")[0] for line in lines] == [
        f"job {job['jobId']} (echo), attempt 1, {outcome}"
        for job, outcome in zip(jobs, ("succeeded", "failed", "lost"), strict=True)
    ]


async def test_failure_counters_match_the_database(served: Served, worker: str) -> None:
    """R003-132: of all workers, also those that this server knows nothing of; a server that starts shows the same."""
    await served.engine.create_many([NewJob(type="echo", max_attempts=1), NewJob(type="echo", max_attempts=2)])
    first, second = await served.engine.claim(worker, limit=2, instance="one")
    await served.engine.fail(worker, first.id, first.token, "E_X")
    assert [one["id"] for one in await served.engine.maintenance.reap(gone=["one"])] == [second.id]
    found = await until(served, "holdfast_job_failures_total", 2)
    assert value(found, "holdfast_stale_jobs_recovered_total") == 1
    assert value(found, "holdfast_max_retries_exceeded_total") == 1


async def test_queries_and_deliveries_are_counted(seen: Served) -> None:
    await seen.http.post("/jobs", json={"jobType": "echo", "payload": {}})
    async with receiving() as receiver:
        receiver.answers = [OK, answer(503)]
        await send_two(seen, receiver.url)
    found = await scraped(seen)
    queries = {"operation": "insert", "table": "holdfast_jobs"}
    assert value(found, "db_query_duration_seconds", "db_query_duration_seconds_count", **queries) >= 1
    sent = {"service": "webhook", "operation": "deliver"}
    assert value(found, "external_duration_seconds", "external_duration_seconds_count", **sent) == 2
    assert value(found, "external_error_total", **sent, error_code="503") == 1
    assert value(found, "external_error_total") == 1
    assert value(found, "holdfast_deliveries_total", outcome="delivered") == 1
    assert value(found, "holdfast_deliveries_total", outcome="failed") == 1


async def test_a_stream_is_counted_when_it_begins_and_shown_while_it_is_open(served_on_sqlite: Served) -> None:
    async with served_on_sqlite.http.stream("GET", "/events") as stream:
        assert stream.status_code == 200
        found = await scraped(served_on_sqlite)
        assert value(found, "holdfast_streams") == 1
        assert value(found, "http_requests_total", route="/events", status_code="200") == 1


async def test_broker_metrics_are_exposed(fresh_sqlite_url: str, redis_server: RedisServer) -> None:
    """R003-133: in its health too, which stays good: all goes on without a broker."""
    async with serving(fresh_sqlite_url, dispatch="redis", redis_url=redis_server.url) as served:
        await until(served, "holdfast_broker_up", 1)
        assert (await served.http.get("/api/health")).json()["broker"] == "ok"
        await served.http.post("/jobs", json={"jobType": "echo", "payload": {}})
        found = await until(served, "holdfast_hints_total", 1, way="sent", outcome="broker")
        assert value(found, "holdfast_breaker_open") == 0
        redis_server.stop(kill=True)
        await until(served, "holdfast_broker_up", 0)
        await until(served, "holdfast_breaker_open", 1)
        health = await served.http.get("/api/health")
        assert (health.json()["status"], health.json()["broker"]) == ("ok", "down")


async def test_without_a_broker_no_broker_state_is_exposed(served_on_sqlite: Served) -> None:
    found = await scraped(served_on_sqlite)
    assert found["holdfast_broker_up"].samples == []
    assert "broker" not in (await served_on_sqlite.http.get("/health")).json()


# -- what nobody can do to them ---------------------------------------------------------------------------------


async def test_names_chosen_by_clients_do_not_create_metrics(served_on_sqlite: Served) -> None:
    """SEC-44: a thousand paths, methods, kinds of body and queues; and no tenant is named."""
    http, registry = served_on_sqlite.http, served_on_sqlite.server.metrics
    for n in range(300):
        await http.get(f"/made/up/{n}")
        await http.request(("MKCOL", "LOCK", "PROPFIND")[n % 3], "/jobs")
        await http.post("/jobs", content=b"{}", headers={"content-type": f"application/x{n}+json"})
        registry.created.add(1, f"made up {n}")
    await served_on_sqlite.engine.create_many(
        [NewJob(type=f"type {n}", queue=f"queue {n}", tenant="secret tenant") for n in range(1000)]
    )
    found = await counted(served_on_sqlite)
    assert "secret tenant" not in (await http.get("/metrics")).text
    assert value(found, "http_requests_total", route="unknown", status_code="404") == 300
    assert value(found, "http_requests_total", method="other", route="/jobs", status_code="405") == 300
    assert {one.labels["mime_type"] for one in found["upload_size_bytes"].samples} == {"other"}
    routes = {one.labels["route"] for one in found["http_requests_total"].samples}
    assert routes <= {"unknown", *(route.template for route in ROUTES)}
    assert len(found["holdfast_jobs_created_total"].samples) <= LABELS_MAX + 1
    assert len(found["holdfast_queue_oldest_wait_seconds"].samples) <= QUEUES_MAX + 1
    assert value(found, "holdfast_queue_jobs") == 1000, "those without a name of their own are counted together"
    assert len(found["holdfast_queue_jobs"].samples) <= (QUEUES_MAX + 1) * len(STATES)


async def test_many_limits_do_not_create_metrics(served_on_sqlite: Served) -> None:
    """Also a name of a limit may come from outside: a tenant, or a key of a job."""
    for n in range(2 * LIMITS_MAX):
        await limit(served_on_sqlite.engine, f"queue:{n}", concurrency=1)
        await limit(served_on_sqlite.engine, f"key:crawl secret key {n}", rate=1)
        await limit(served_on_sqlite.engine, f"tenant:secret tenant {n}", rate=1)
    found = await counted(served_on_sqlite)
    assert "secret" not in (await served_on_sqlite.http.get("/metrics")).text
    families = [family for name, family in found.items() if name.startswith("holdfast_limit_")]
    assert [len(family.samples) for family in families if len(family.samples) > LIMITS_MAX + 1] == []
    assert {one.labels["limit"] for one in found["holdfast_limit_units"].samples} >= {"key:crawl", "other"}


def test_a_known_queue_is_exposed_when_it_is_empty() -> None:
    """Else whoever watches it could not tell an empty queue from one that was never there."""
    registry = ServerMetrics()
    registry.show_depths(QueueStats(queues={"a": QueueDepth(waiting=2, oldest_seconds=9)}), 0)
    registry.show_depths(QueueStats(queues={"b": QueueDepth(running=1)}), 0)
    assert registry.oldest.values == {("a",): 0, ("b",): 0}
    assert registry.jobs.values["a", "waiting"] == 0
    full = {f"q{n}": QueueDepth(waiting=1) for n in range(2 * QUEUES_MAX)}
    registry.show_depths(QueueStats(queues=full), 0)
    assert len(registry.oldest.values) == QUEUES_MAX + 1
    assert registry.jobs.values["other", "waiting"] == QUEUES_MAX


async def test_a_scrape_costs_the_database_one_short_query(served: Served, asked: list[str]) -> None:
    """However many jobs there are: what was counted a short while ago is not counted again, by nobody."""
    await counted(served)
    asked.clear()
    for _ in range(5):
        await scraped(served)
    assert 1 <= asked.count("counted") <= 5 + 1, "beside these, the courier reads its own counts now and then"
    assert not {"queue_stats", "worker_stats", "begin_count"} & {*asked}


async def test_a_scrape_does_not_wait_for_a_database_that_hangs(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the old figures, and how old they are."""
    await served_on_sqlite.engine.create(NewJob(type="echo"))
    await counted(served_on_sqlite)
    calls: list[int] = []

    async def hanging(max_age_seconds: float = 10) -> QueueStats:
        calls.append(1)
        await asyncio.Event().wait()
        return QueueStats()

    monkeypatch.setattr(served_on_sqlite.engine.reads, "queue_stats", hanging)
    waits = iter([metrics.WAIT_SECONDS])  # the first who asks waits a little; nobody after him
    within = Clock.within

    async def noted(clock: Clock, event: asyncio.Event, seconds: float) -> bool:
        if event is served_on_sqlite.server.queue_metrics._heard:
            assert seconds == next(waits)
        return await within(clock, event, seconds)

    monkeypatch.setattr(Clock, "within", noted)
    for _ in range(3):
        found = await scraped(served_on_sqlite)
        assert value(found, "holdfast_queue_jobs", state="waiting") == 1
    assert calls == [1]
    assert value(found, "holdfast_queue_stats_age_seconds") > 0


async def test_a_server_without_queue_statistics_exposes_their_absence(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(max_age_seconds: float = 10) -> QueueStats:
        raise StoreUnavailable("nobody there")

    monkeypatch.setattr(served_on_sqlite.engine.reads, "queue_stats", failing)
    found = await scraped(served_on_sqlite)
    assert value(found, "holdfast_queue_stats_age_seconds") == float("inf")
    assert found["holdfast_queue_jobs"].samples == []


# -- to whom ----------------------------------------------------------------------------------------------------


async def test_on_loopback_metrics_need_no_key(served_on_sqlite: Served) -> None:
    """Keys or no keys. What is shown must be good all the same, and a page from elsewhere gets nothing."""
    http = served_on_sqlite.http
    await served_on_sqlite.engine.keys.create(NewKey())
    assert (await http.get("/metrics")).status_code == 200
    assert (await http.get("/metrics", headers=bearer("gibberish"))).status_code == 401
    assert (await http.get("/metrics", headers={"Host": "rebound.example"})).json()["code"] == "wrong_host"
    assert (await http.get("/metrics", headers={"Origin": "http://a.example"})).json()[
        "code"
    ] == "cross_origin_forbidden"


async def test_on_other_addresses_metrics_need_an_operator_key(fresh_sqlite_url: str) -> None:
    """SEC-44: with a key that may `admin:read`, or the admin secret."""
    async with serving(fresh_sqlite_url, host="0.0.0.0") as served:
        client = (await served.engine.keys.create(NewKey())).text
        reader = (await served.engine.keys.create(NewKey(kind=Kind.ADMIN))).text
        statuses = [
            (await served.http.get("/metrics", headers=headers)).status_code
            for headers in ({}, bearer(client), bearer(reader), ADMIN)
        ]
    assert statuses == [401, 403, 200, 200]
