"""Following generations: pages, the place in the queue, events, and how they are canceled."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.reports import HeldLease
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.workloads.generation import waiting
from tests.server.event_reader import Said, watching
from tests.server.steps import ADMIN
from tests.worker.in_process import until
from tests.workloads.generation.provider_stub import ProviderStub, image_base64, provider_stub, silent, status
from tests.workloads.generation.steps import ON_SQLITE, START, Service, Sets


def ids(page: dict[str, Any]) -> list[str]:
    return [each["generationId"] for each in page["generations"]]


async def several(service: Service, count: int) -> list[str]:
    """The oldest first."""
    return [(await service.accepted(f"number {n}"))["generationId"] for n in range(count)]


# -- pages ---------------------------------------------------------------------------------------------------------


async def test_pages_have_the_newest_first(service: Service) -> None:
    made = await several(service, 5)
    assert ids(await service.get("/generations")) == made[::-1]
    found: list[str] = []
    cursor, page = dict[str, str](), dict[str, Any]()
    for expected in (2, 2, 1):
        page = await service.get("/generations", limit=2, **cursor)
        assert len(page["generations"]) == expected
        found += ids(page)
        cursor = {"cursor": page["nextCursor"]}
    assert (found, page["nextCursor"]) == (made[::-1], None)


@ON_SQLITE
async def test_what_is_new_does_not_move_a_page(service: Service) -> None:
    made = await several(service, 3)
    page = await service.get("/generations", limit=1)
    await service.accepted("a new one")
    assert ids(await service.get("/generations", cursor=page["nextCursor"])) == made[1::-1]


async def test_pages_of_one_status(service: Service, blocklist: Callable[..., None]) -> None:
    rejected = (await service.accepted("a pangolin"))["generationId"]
    canceled = (await service.accepted("another"))["generationId"]
    await service.ask("POST", f"/generations/{canceled}/cancel")
    blocklist("pangolin")
    completed = (await service.made())["generationId"]
    await until(lambda: has_status(service, rejected, "rejected"))
    queued = (await service.accepted("a third"))["generationId"]
    for word, expected in {
        "queued": [queued],
        "running": [],
        "completed": [completed],
        "failed": [],
        "rejected": [rejected],
        "dead_letter": [canceled],
    }.items():
        page = await service.get("/generations", status=word)
        assert (ids(page), page["nextCursor"]) == (expected, None), word
    whole = {each["generationId"]: each for each in (await service.get("/generations"))["generations"]}
    assert len(whole[completed]["assets"]) == 1
    assert {"queuePosition", "etaSeconds"}.isdisjoint(whole[queued])


async def has_status(service: Service, id_: str, word: str) -> bool:
    return bool((await service.generation(id_))["status"] == word)


LISTS = ("/generations", "/assets", "/credits/statement")


@ON_SQLITE
async def test_a_cursor_that_is_from_no_page_is_422(service: Service) -> None:
    await service.accepted()
    for path in LISTS:
        for cursor in ("", "x", "-1", "g", "%", "1' OR '1'='1", "9" * 19, "1.5", "\u0661"):
            assert await service.refused("GET", path, params={"cursor": cursor}) == (422, "invalid_cursor"), cursor


@ON_SQLITE
async def test_an_invalid_query_is_422(service: Service) -> None:
    for path in LISTS:
        for query in ({"limit": 0}, {"limit": 501}, {"limit": "x"}, {"unknown": "1"}):
            assert (await service.ask("GET", path, params=query)).status_code == 422, (path, query)
    for word in ("", "QUEUED", "canceled", "PENDING"):
        assert (await service.ask("GET", "/generations", params={"status": word})).status_code == 422, word


# -- the queue -----------------------------------------------------------------------------------------------------


async def test_a_queued_generation_has_a_place_in_the_queue(service: Service) -> None:
    first, second, third = await several(service, 3)
    assert [(await service.generation(id_))["queuePosition"] for id_ in (first, second, third)] == [1, 2, 3]
    assert "etaSeconds" not in await service.generation(first), "nothing is known yet"
    await service.ask("POST", f"/generations/{first}/cancel")
    assert [(await service.generation(id_))["queuePosition"] for id_ in (second, third)] == [1, 2]
    assert "queuePosition" not in await service.generation(first)


async def test_behind_a_thousand_others_it_has_no_place(
    service: Service, stub: ProviderStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert waiting.COUNTED_MAX == 1000, "as the description of the field says"
    monkeypatch.setattr(waiting, "COUNTED_MAX", 2)
    stub.otherwise_create = advances(service, 10)
    await service.made("before", provider="openai")
    ids = await several(service, 4)
    shown = [await service.generation(id_) for id_ in ids]
    assert [each.get("queuePosition") for each in shown] == [1, 2, None, None]
    assert [each.get("etaSeconds") for each in shown] == [10, 20, None, None]


async def test_the_wait_is_estimated_from_the_last_ones(service: Service, stub: ProviderStub) -> None:
    """Two that took 10 seconds each, one after the other: 10 seconds for each place in the queue."""
    for n in range(2):
        stub.otherwise_create = advances(service, 10)
        await service.made(f"number {n}", provider="openai")
    waiting = await several(service, 2)
    assert [(await service.generation(id_))["etaSeconds"] for id_ in waiting] == [10, 20]
    service.clock.advance(600)  # nothing runs
    assert (await service.generation(waiting[0]))["etaSeconds"] == 10
    await service.served.engine.queues.pause("generation")
    assert "etaSeconds" not in await service.generation(waiting[0])
    await service.served.engine.queues.resume("generation")
    assert (await service.generation(waiting[0]))["etaSeconds"] == 10
    service.clock.advance(3601)
    assert "etaSeconds" not in await service.generation(waiting[0]), "that was long ago"


def test_the_pace_is_that_of_the_time_in_which_any_ran() -> None:
    spans = [(0, 10), (5, 12), (100, 104), (101, 103), (200, 206)]
    runs = [(START + timedelta(seconds=began), START + timedelta(seconds=ended)) for began, ended in spans]
    assert waiting.eta_seconds(2, runs) == waiting.eta_seconds(2, runs[::-1]) == 2 * (12 + 4 + 6) / 5


def advances(service: Service, seconds: float) -> Callable[[Any], None]:
    def answer(exchange: Any) -> None:
        service.clock.advance(seconds)
        image_base64(exchange)

    return answer


@pytest.fixture
def stub(generation_settings: Sets) -> Any:
    """A provider that is slow, or fails, as a test says."""
    with provider_stub() as stub:
        generation_settings(openai_url=stub.openai_url, openai_key="sk-test", poll_url=stub.poll_url, poll_key="test")
        yield stub


# -- cancel --------------------------------------------------------------------------------------------------------


async def cancel(service: Service, id_: str) -> Any:
    return await service.ask("POST", f"/generations/{id_}/cancel")


async def test_a_queued_generation_is_canceled(service: Service) -> None:
    accepted = await service.accepted(count=3)
    answer = await cancel(service, accepted["generationId"])
    assert answer.status_code == 202, answer.text
    canceled = answer.json()
    assert (canceled["status"], canceled["error"]["code"]) == ("dead_letter", "canceled")
    assert (canceled["creditsReserved"], canceled["creditsCharged"], canceled["assets"]) == (0, 0, [])
    assert canceled == await service.generation(accepted["generationId"])
    assert await service.statement() == [("grant", 100), ("reserve", 3), ("release", 3)]
    assert await service.credits() == (100, 0, 100)
    rows = service.rows()
    again = await cancel(service, accepted["generationId"])
    assert (again.status_code, again.json()) == (202, canceled)
    assert service.rows() == rows


async def test_a_running_generation_is_canceled(service: Service, stub: ProviderStub) -> None:
    stub.otherwise_create = silent(60)
    accepted = await service.accepted(provider="openai", count=2)
    id_ = accepted["generationId"]
    async with service.working() as at_work:
        await until(lambda: len(stub.of("POST")) == 2)
        assert (await service.generation(id_))["status"] == "running"
        token = (await service.served.engine.reads.get(accepted["jobId"])).lease_token
        for _ in range(2):
            answer = await cancel(service, id_)
            assert (answer.status_code, answer.json()["status"]) == (202, "running")
        at_work.worker.on_heartbeat(HeartbeatResult(cancel=[HeldLease(accepted["jobId"], str(token))]))
        canceled = await service.ended(id_)
    assert (canceled["status"], canceled["error"]["code"]) == ("dead_letter", "canceled")
    assert await service.statement() == [("grant", 100), ("reserve", 2), ("release", 2)]
    assert service.files() == []
    assert (await cancel(service, id_)).status_code == 202, "again"


async def test_what_has_ended_cannot_be_canceled(service: Service, blocklist: Callable[..., None]) -> None:
    completed = await service.made()
    accepted = await service.accepted("a pangolin")
    blocklist("pangolin")
    async with service.working():
        rejected = await service.ended(accepted["generationId"])
    has, rows = await service.credits(), service.rows()
    for ended in (completed, rejected):
        path = f"/generations/{ended['generationId']}/cancel"
        assert await service.refused("POST", path) == (409, "already_final")
        assert (await service.generation(ended["generationId"]))["status"] == ended["status"]
    assert (await service.credits(), service.rows()) == (has, rows)


async def test_a_cancel_of_the_job_is_one_of_the_generation(service: Service) -> None:
    accepted = await service.accepted()
    assert (await service.ask("POST", f"/jobs/{accepted['jobId']}/cancel")).status_code == 202
    assert (await service.generation(accepted["generationId"]))["error"]["code"] == "canceled"
    assert await service.credits() == (100, 0, 100)


# -- retries -------------------------------------------------------------------------------------------------------


async def test_a_generation_is_failed_until_its_retry(service: Service, stub: ProviderStub) -> None:
    """R004-1, R004-5, R004-19, R004-20, R004-22: the word of 004 for what waits for another attempt."""
    stub.creates = [status(500, b"the password of the database is x")]
    accepted = await service.accepted(provider="openai")
    id_ = accepted["generationId"]
    async with service.working():
        await until(lambda: has_status(service, id_, "failed"))
        failed = await service.generation(id_)
        assert failed["error"]["code"] == "provider_unavailable"
        assert "password" not in str(failed)
        assert ids(await service.get("/generations", status="failed")) == [id_]
        assert await service.credits() == (100, 1, 99), "they stay reserved"
        woken = await service.http.post(f"/api/admin/jobs/{accepted['jobId']}/wake", headers=ADMIN)
        assert woken.status_code == 200, woken.text
        completed = await service.ended(id_)
    assert (completed["status"], completed["retryCount"]) == ("completed", 1)
    assert "error" not in completed
    assert await service.statement() == [("grant", 100), ("reserve", 1), ("commit", 1)]


# -- events --------------------------------------------------------------------------------------------------------


async def test_events_tell_what_happens_until_the_end(service: Service) -> None:
    """R004-1: `queued`, `running`, `completed`."""
    alice = await service.user("alice")
    accepted = await alice.accepted()
    path = f"/generations/{accepted['generationId']}/events"
    async with watching(service.served, path, headers=alice.headers) as events, service.working():
        said = await events.rest()
    assert {each.data["jobId"] for each in said} == {accepted["jobId"]}
    assert [each.data["seq"] for each in said] == sorted(each.data["seq"] for each in said)
    assert states_of(said)[0] == "PENDING"
    assert "RUNNING" in states_of(said)
    assert states_of(said)[-1] == "COMPLETED"


def states_of(said: list[Said]) -> list[str]:
    return [each.data["status"] for each in said if "status" in each.data]


async def test_events_can_be_resumed(service: Service) -> None:
    made = await service.made()
    path = f"/generations/{made['generationId']}/events"
    async with watching(service.served, path) as events:
        said = await events.rest()
    async with watching(service.served, path, last=said[0].id) as events:
        assert [each.id for each in await events.rest()] == [each.id for each in said[1:]]
    assert (await service.ask("GET", path, headers={"Last-Event-ID": str(said[-1].id)})).status_code == 204


async def test_events_of_a_canceled_generation_end(service: Service) -> None:
    accepted = await service.accepted()
    async with watching(service.served, f"/generations/{accepted['generationId']}/events") as events:
        await events.next()
        await cancel(service, accepted["generationId"])
        said = await events.rest()
    assert states_of(said)[-1] == "CANCELED"


@ON_SQLITE
async def test_a_link_uses_the_address_of_the_request(service: Service, generation_settings: Sets) -> None:
    made = await service.made()
    assert made["resultUrl"].startswith(service.served.url + "/assets/")
    generation_settings(public_url="https://images.example.com/")
    assert (await service.generation(made["generationId"]))["resultUrl"].startswith(
        "https://images.example.com/assets/"
    )
