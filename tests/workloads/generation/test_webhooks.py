"""Webhooks of the provider: they wake the generation that waits for a prediction, and do nothing else."""

import asyncio
import json
import secrets
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.lifecycle import State
from holdfast.signatures import TOLERANCE_SECONDS, sign
from tests.workloads.generation.provider_stub import SECRET, status
from tests.workloads.generation.running import Running, ledger_is_valid, running, stub
from tests.workloads.generation.steps import FINAL, ON_SQLITE

__all__ = ["running", "stub"]

OTHER_SECRET = "another secret of 16 bytes and more"
NOBODY = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def clock() -> MovableClock:
    """The stub signs with the real time."""
    return MovableClock(datetime.now(UTC))


@pytest.fixture
def polled(running: Running) -> Running:
    """Predictions announce their end, and are polled each half minute."""
    running.sets(public_url=running.service.served.url, provider="poll")
    running.stub.progress = ["processing"]
    running.stub.otherwise_poll = long_intervals
    return running


def long_intervals(exchange: Any) -> None:
    made = exchange.prediction
    made.move_on()
    exchange.reply(200, exchange.stub.shown(made), {"Retry-After": "30"})


async def post(running: Running, job_id: str, body: bytes = b"{}", **changed: str) -> tuple[int, str]:
    """Status and code. `changed`: headers, or the secret; an empty header is left out."""
    secret, at = changed.pop("secret", SECRET), str(int(time.time()) + int(changed.pop("later", "0")))
    signature = sign(secret, "msg_1", int(at), body)
    signed = {"webhook_id": "msg_1", "webhook_timestamp": at, "webhook_signature": signature, **changed}
    headers = {name.replace("_", "-"): text for name, text in signed.items() if text}
    answer = await running.service.http.post(f"/generations/webhooks/{job_id}", content=body, headers=headers)
    return answer.status_code, answer.json().get("code", "") if answer.content else ""


async def waiting(running: Running, **more: Any) -> dict[str, Any]:
    accepted = await running.service.accepted(**more)
    await running.until_waiting(accepted)
    return accepted


INVALID = {
    "of another secret": {"secret": OTHER_SECRET},
    "missing": {"webhook_signature": ""},
    "without an id": {"webhook_id": ""},
    "with another id": {"webhook_id": "msg_2"},
    "without a time": {"webhook_timestamp": ""},
    "too old": {"later": str(-TOLERANCE_SECONDS - 60)},
    "of the future": {"later": str(TOLERANCE_SECONDS + 60)},
    "no signature": {"webhook_signature": "v1,AAAA"},
    "no time": {"webhook_timestamp": "soon"},
}


@ON_SQLITE
@pytest.mark.parametrize("wrong", INVALID)
async def test_a_signature_that_is_not_valid_wakes_nothing(polled: Running, wrong: str) -> None:
    async with polled.service.working():
        accepted = await waiting(polled)
        assert await post(polled, accepted["jobId"], b"{}", **INVALID[wrong]) == (401, "invalid_signature")
        assert await post(polled, NOBODY, b"{}", **INVALID[wrong]) == (401, "invalid_signature")
        job = await polled.job(accepted)
        assert (job.state, job.due, job.epoch) == (State.QUEUED, False, 1)


@ON_SQLITE
async def test_a_body_that_was_changed_is_refused(polled: Running) -> None:
    signature = sign(SECRET, "msg_1", int(time.time()), b'{"id": "p1"}')
    refused = await post(polled, NOBODY, b'{"id": "p2"}', webhook_signature=signature)
    assert refused == (401, "invalid_signature")


@ON_SQLITE
async def test_one_of_several_signatures_is_enough(polled: Running) -> None:
    """While the provider rotates its secret."""
    async with polled.service.working():
        accepted = await waiting(polled)
        now = int(time.time())
        both = f"{sign(OTHER_SECRET, 'msg_1', now, b'{}')} {sign(SECRET, 'msg_1', now, b'{}')}"
        signed = {"webhook_timestamp": str(now), "webhook_signature": both}
        assert await post(polled, accepted["jobId"], b"{}", **signed) == (204, "")


@ON_SQLITE
async def test_without_a_secret_there_are_no_webhooks(polled: Running) -> None:
    polled.sets(webhook_secret="")
    async with polled.service.working():
        accepted = await waiting(polled)
        assert "webhook" not in polled.stub.of("POST", "/v1/predictions")[0].body
        assert await post(polled, accepted["jobId"]) == (404, "no_webhooks")


@ON_SQLITE
@pytest.mark.parametrize("job_id", [NOBODY, "nobody", "%27%20OR%201=1", "a" * 2000])
async def test_a_job_that_does_not_exist_is_404(polled: Running, job_id: str) -> None:
    assert await post(polled, job_id) == (404, "generation_not_found")


async def test_a_webhook_wakes_the_generation_at_once(polled: Running) -> None:
    """The clock stands still: without the webhook it would wait for half a minute."""
    service, stub = polled.service, polled.stub
    async with service.working():
        accepted = await waiting(polled)
        await polled.wake(accepted)
        job = await polled.until_waiting(accepted, executions=2)
        assert (job.run_at - service.clock.now()).total_seconds() > 29
        assert stub.requests[0].body["webhook"] == f"{service.served.url}/generations/webhooks/{accepted['jobId']}"
        stub.end("p1")
        assert await in_threads(stub.send_webhook, "p1") == [204]
        made = await service.ended(accepted["generationId"])
    await polled.is_delivered(made, [f"{accepted['jobId']}-0"])
    assert (await polled.job(accepted)).attempt == 1


async def in_threads(function: Any, *args: Any, **more: Any) -> Any:
    """The stub waits for the answers of the server, which is in this event loop."""
    return await asyncio.to_thread(function, *args, **more)


@ON_SQLITE
async def test_a_webhook_before_the_answer_to_the_order_is_harmless(polled: Running) -> None:
    """The job is running then; it does not wait after that."""
    polled.stub.webhooks_before_answer = 3
    accepted = await polled.service.accepted()
    async with polled.service.working():
        made = await polled.service.ended(accepted["generationId"])
    assert polled.stub.webhook_statuses == [204] * 3
    assert polled.paid() == {f"{made['jobId']}-0": 1}
    assert made["status"] == "completed"


async def test_a_webhook_while_the_job_runs_is_not_lost(polled: Running) -> None:
    """The answer to the order says that it is still processing; the prediction has ended before it arrives."""

    def ends_meanwhile(exchange: Any) -> None:
        shown = exchange.stub.shown(exchange.prediction)
        exchange.stub.end(exchange.prediction.id, webhooks=1)
        exchange.reply(201, shown)

    polled.stub.creates = [ends_meanwhile]
    accepted = await polled.service.accepted()
    async with polled.service.working():
        made = await polled.service.ended(accepted["generationId"])
    assert made["status"] == "completed"


async def test_ten_webhooks_make_one_image(polled: Running) -> None:
    service = polled.service
    async with service.working():
        accepted = await waiting(polled)
        polled.stub.end("p1", webhooks=0)
        assert await in_threads(polled.stub.send_webhook, "p1", 10) == [204] * 10
        made = await service.ended(accepted["generationId"])
        assert await in_threads(polled.stub.send_webhook, "p1", 10, webhook_id="msg_again") == [204] * 10
        await polled.until_idle()
        again = await service.generation(accepted["generationId"])
        assert (again["updatedAt"], len(again["assets"])) == (made["updatedAt"], 1)
    assert (await service.statement())[1:] == [("reserve", 1), ("commit", 1)]
    assert polled.paid() == {f"{accepted['jobId']}-0": 1}
    ends = [event.verb for event in await service.served.engine.reads.history(accepted["jobId"])]
    assert ends.count("complete") == 1
    await ledger_is_valid(service)


async def test_a_webhook_of_a_canceled_generation_is_harmless(polled: Running) -> None:
    service = polled.service
    async with service.working():
        accepted = await waiting(polled)
        assert (await service.ask("POST", f"/generations/{accepted['generationId']}/cancel")).status_code == 202
        polled.stub.end("p1", webhooks=0)
        assert await in_threads(polled.stub.send_webhook, "p1", 3) == [204] * 3
        await polled.until_idle()
    generation = await service.generation(accepted["generationId"])
    assert (generation["status"], generation["error"]["code"]) == ("dead_letter", "canceled")
    assert await service.statement() == [("grant", 100), ("reserve", 1), ("release", 1)]
    assert polled.service.files() == []


LIES = [b'{"id": "p1", "status": "succeeded", "output": ["http://127.0.0.1:9/x.png"]}', b"not JSON", b"", b"[1]"]


@ON_SQLITE
@pytest.mark.parametrize("body", LIES)
async def test_a_lie_in_a_webhook_does_no_harm(polled: Running, body: bytes) -> None:
    """The service asks the provider itself, which still works on it."""
    async with polled.service.working():
        accepted = await waiting(polled)
        assert await post(polled, accepted["jobId"], body) == (204, "")
        job = await polled.until_waiting(accepted, executions=2)
        assert (job.state, job.attempt) == (State.QUEUED, 0)  # a poll is no attempt
        assert (await polled.service.generation(accepted["generationId"]))["status"] == "running"
        polled.stub.end("p1", webhooks=0)
        assert (await polled.finish(accepted))["status"] == "completed"


@ON_SQLITE
async def test_a_webhook_during_a_retry_starts_it_at_once(polled: Running) -> None:
    polled.stub.creates = [status(503)]
    async with polled.service.working():
        accepted = await waiting(polled)
        assert (await polled.job(accepted)).state is State.RETRYING
        assert await post(polled, accepted["jobId"]) == (204, "")
        job = await polled.until_waiting(accepted, executions=2)
        assert (job.state, job.attempt) == (State.QUEUED, 1)


async def test_the_job_of_another_tenant_is_woken_by_its_own_webhook(polled: Running) -> None:
    """The route has no key, and the signature is that of the provider, which knows no tenants."""
    service = polled.service
    ann = await service.user("ann", tenant="acme")
    accepted = await ann.accepted()
    async with service.working():
        await polled.until_waiting(accepted)
        polled.stub.end("p1", webhooks=0)
        assert await in_threads(polled.stub.send_webhook, "p1") == [204]
        generation = await ann.ended(accepted["generationId"])
    assert generation["status"] == "completed"
    assert (await polled.job(accepted)).tenant == "acme"
    assert await ann.credits() == (99, 0, 99)


async def test_webhooks_at_random_times_do_no_harm(polled: Running) -> None:
    """Before, while and after the job runs, each of several times."""
    service, stub = polled.service, polled.stub
    stub.webhooks_before_answer, stub.webhooks_at_end, stub.webhooks_after_cancel = 2, 2, 2
    accepted = [await service.accepted(f"number {number}", count=2) for number in range(4)]
    async with service.working():
        for each in accepted:
            assert await post(polled, each["jobId"], json.dumps({"id": secrets.token_hex(4)}).encode()) == (204, "")
        for each in accepted:
            generation = await service.ended(each["generationId"])
            assert generation["status"] in FINAL
            assert (await post(polled, each["jobId"]))[0] == 204
    assert set(stub.paid.values()) == {1}
    assert await service.credits() == (92, 0, 92)
    await ledger_is_valid(service)
