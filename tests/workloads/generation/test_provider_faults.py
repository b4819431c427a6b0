"""What becomes of a generation when its provider fails: class, credits, and what clients and operators see."""

import io
import json
from typing import Any

import pytest
from PIL import Image

from holdfast.lifecycle import State
from holdfast.workloads.generation.faults import MESSAGES
from tests.workloads.generation.orders import KEY
from tests.workloads.generation.provider_stub import (
    Answering,
    drawn,
    endless,
    error,
    hangs_up,
    html,
    image_url,
    no_quota,
    paid_and_lost,
    redirect,
    short,
    silent,
    status,
    throttled,
    unsafe,
)
from tests.workloads.generation.running import Running, ledger_is_valid, running, stub
from tests.workloads.generation.steps import ON_SQLITE

__all__ = ["running", "stub"]

SECRET_TEXT = "upstream host gpu7.internal.example says no"
SENT_MAX = 60_000_000  # of a gigabyte: the limit of an answer, and what sockets hold


def gif() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "GIF")
    return file.getvalue()


def as_download(answer: Answering) -> dict[str, Any]:
    return {"otherwise_create": image_url, "otherwise_download": answer}


PERMANENT, RETRIED = 1, 5  # attempts
FAULTS: dict[str, tuple[dict[str, Any], str, int]] = {
    "5xx": ({"otherwise_create": status(503, SECRET_TEXT.encode())}, "provider_unavailable", RETRIED),
    "500 in JSON": ({"otherwise_create": error(500, "server_error", SECRET_TEXT)}, "provider_unavailable", RETRIED),
    "throttled": ({"otherwise_create": throttled("5")}, "provider_throttled", RETRIED),
    "no quota": ({"otherwise_create": no_quota}, "provider_quota", PERMANENT),
    "402": ({"otherwise_create": status(402, b"pay")}, "provider_quota", PERMANENT),
    "denied": ({"otherwise_create": error(401, "invalid_api_key", SECRET_TEXT)}, "provider_denied", RETRIED),
    "forbidden": ({"otherwise_create": status(403, SECRET_TEXT.encode())}, "provider_denied", RETRIED),
    "refused": ({"otherwise_create": error(400, "invalid_size", SECRET_TEXT)}, "provider_refused", PERMANENT),
    "html": ({"otherwise_create": html}, "provider_bad_answer", RETRIED),
    "no json": ({"otherwise_create": status(200, b"\x89PNG")}, "provider_bad_answer", RETRIED),
    "no image": ({"otherwise_create": status(200, {"data": []})}, "provider_bad_answer", RETRIED),
    "lost connection": ({"otherwise_create": hangs_up}, "provider_unavailable", RETRIED),
    "wrong length": ({"otherwise_create": short()}, "provider_unavailable", RETRIED),
    "redirecting API": ({"otherwise_create": redirect("http://127.0.0.1/x")}, "provider_bad_answer", RETRIED),
    "html for an image": (as_download(html), "provider_bad_answer", RETRIED),
    "wrong type": (as_download(status(200, gif(), content_type="image/png")), "provider_bad_answer", RETRIED),
    "truncated image": (as_download(status(200, drawn("k", 64, 64)[:-30])), "provider_bad_answer", RETRIED),
    "wrong length of an image": (as_download(short(drawn("k", 64, 64), 10_000)), "provider_unavailable", RETRIED),
    "huge image": (as_download(endless()), "image_too_large", PERMANENT),
    "huge image with its length": (as_download(endless(with_length=True)), "image_too_large", PERMANENT),
    "huge answer": ({"otherwise_create": endless()}, "image_too_large", PERMANENT),
    "expired URL": (as_download(status(403, SECRET_TEXT.encode())), "provider_bad_answer", RETRIED),
    "storage of the provider is down": (as_download(status(502)), "provider_unavailable", RETRIED),
    "private address": (as_download(redirect("http://10.11.12.13/secret.png")), "provider_bad_answer", RETRIED),
    "metadata address": (as_download(redirect("http://169.254.169.254/latest")), "provider_bad_answer", RETRIED),
    "a file": (as_download(redirect("file:///etc/passwd")), "provider_bad_answer", RETRIED),
}


@ON_SQLITE
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_ends_in_its_class(running: Running, fault: str) -> None:
    answers, code, attempts = FAULTS[fault]
    for name, answering in answers.items():
        setattr(running.stub, name, answering)
    generation = await running.run(count=2)
    assert len(await running.attempts(generation)) == attempts
    await is_dead(running, generation, code)
    assert running.stub.bytes_sent < SENT_MAX * 2 * attempts
    assert set(running.keys()) == {f"{generation['jobId']}-0", f"{generation['jobId']}-1"}
    assert max(running.stub.paid.values(), default=0) <= 1


async def is_dead(running: Running, generation: dict[str, Any], code: str) -> None:
    """A dead letter with this code, and with all credits released."""
    assert generation["status"] == "dead_letter", generation
    assert generation["error"] == {"code": code, "message": MESSAGES[code]}
    assert (generation["assets"], generation["creditsCharged"]) == ([], 0)
    assert await running.service.credits() == (100, 0, 100)
    kinds = [kind for kind, _ in await running.service.statement()]
    assert kinds == ["grant", "reserve", "release"]
    assert (await running.job(generation)).state is State.DEAD
    await clients_see_no_detail(running, generation, code)
    [*_, last] = await running.attempts(generation)
    assert last.error["context"]["detail"]
    assert KEY not in json.dumps(last.error)
    assert not running.service.files("originals/")
    await ledger_is_valid(running.service)


async def clients_see_no_detail(running: Running, generation: dict[str, Any], code: str) -> None:
    """Neither in the generation nor in its job."""
    job = await running.service.get(f"/jobs/{generation['jobId']}")
    for seen in (json.dumps(generation), json.dumps(job)):
        for text in ("internal.example", "10.11.12.13", "169.254", "etc/passwd", "provider answered", "upstream", KEY):
            assert text not in seen
        port = running.stub.url.rpartition(":")[2]
        assert f"127.0.0.1:{port}" not in seen


@ON_SQLITE
async def test_operators_see_the_detail(running: Running) -> None:
    running.stub.otherwise_create = error(400, "invalid_size", SECRET_TEXT)
    generation = await running.run()
    [attempt] = await running.attempts(generation)
    assert attempt.error["context"]["detail"] == f"the provider answered with 400: {SECRET_TEXT}"


async def test_a_dead_letter_releases_all_credits(running: Running) -> None:
    running.stub.otherwise_create = status(503)
    generation = await running.run(count=3)
    await is_dead(running, generation, "provider_unavailable")
    assert await running.service.statement() == [("grant", 100), ("reserve", 3), ("release", 3)]


@pytest.mark.parametrize("provider", ["openai", "poll"])
async def test_a_verdict_of_the_provider_is_a_rejection(running: Running, provider: str) -> None:
    running.stub.creates = [unsafe]
    generation = await running.run(count=2, provider=provider, key="mine")
    assert generation["status"] == "rejected"
    assert generation["error"] == {"code": "provider_rejected", "message": MESSAGES["provider_rejected"]}
    assert (generation["assets"], generation["creditsCharged"]) == ([], 2)
    await is_forfeited(running, 2)
    again = await running.service.accepted(count=2, provider=provider, key="mine")
    assert (again["generationId"], again["status"]) == (generation["generationId"], "rejected")
    assert len(await running.attempts(generation)) == 1
    await clients_see_no_detail(running, generation, "provider_rejected")


async def is_forfeited(running: Running, amount: int) -> None:
    """Without a refund, and with an entry in the audit."""
    assert await running.service.statement() == [("grant", 100), ("reserve", amount), ("forfeit", amount)]
    assert await running.service.credits() == (100 - amount, 0, 100 - amount)
    assert (await running.service.audit()).count("SAFE_BLOCK") == 1
    assert not await running.recorded()
    await running.is_clean()


@ON_SQLITE
@pytest.mark.parametrize("said", ["nsfw", "failed for safety"])
async def test_a_prediction_that_is_unsafe_is_a_rejection(running: Running, said: str) -> None:
    running.stub.progress = ["processing"]
    accepted = await running.service.accepted(provider="poll")
    async with running.service.working():
        await running.until_waiting(accepted)
        if said == "nsfw":
            running.stub.end("p1", "nsfw")
        else:
            running.stub.end("p1", "failed", error="NSFW content detected by the safety checker")
        generation = await running.finish(accepted)
    assert (generation["status"], generation["error"]["code"]) == ("rejected", "provider_rejected")
    await is_forfeited(running, 1)


@pytest.mark.parametrize("provider", ["openai", "poll"])
async def test_a_throttled_generation_waits_as_long_as_the_provider_says(running: Running, provider: str) -> None:
    running.stub.creates, running.stub.progress = [throttled("77")], ["succeeded"]
    service = running.service
    accepted = await service.accepted(provider=provider)
    async with service.working():
        job = await running.until_waiting(accepted)
        assert job.state is State.RETRYING
        assert (job.run_at - service.clock.now()).total_seconds() >= 77
        shown = await service.generation(accepted["generationId"])
        assert (shown["status"], shown["error"]["code"]) == ("failed", "provider_throttled")
        assert await service.credits() == (100, 1, 99)
        made = await running.finish(accepted)
    assert (made["status"], made["retryCount"]) == ("completed", 1)
    assert "error" not in made
    assert len(set(running.keys())) == 1


@ON_SQLITE
async def test_the_longest_pause_of_several_images_is_kept(running: Running) -> None:
    running.stub.creates = [throttled("30"), throttled("90"), status(503), throttled("60")]
    accepted = await running.service.accepted(count=4)
    async with running.service.working():
        job = await running.until_waiting(accepted)
        assert (job.run_at - running.service.clock.now()).total_seconds() >= 90


@ON_SQLITE
async def test_timeouts_are_retried_with_the_same_key(running: Running) -> None:
    """A second of silence is a timeout here; the provider has made the image meanwhile."""
    running.sets(provider_timeout_seconds=1)
    running.stub.creates = [silent(60)]
    accepted = await running.service.accepted()
    async with running.service.working():
        await running.until_waiting(accepted)
        shown = await running.service.generation(accepted["generationId"])
        assert shown["error"] == {"code": "provider_timeout", "message": MESSAGES["provider_timeout"]}
        running.sets(provider_timeout_seconds=60)
        made = await running.finish(accepted)
    assert made["status"] == "completed"
    assert running.keys() == [f"{accepted['jobId']}-0"] * 2


@ON_SQLITE
async def test_fifty_redirects_are_not_followed(running: Running) -> None:
    def redirecting(exchange: Any) -> None:
        exchange.stub.pay(exchange.key, exchange.request.body)
        exchange.reply(200, {"data": [{"url": exchange.stub.redirecting_url(50)}]})

    running.stub.otherwise_create = redirecting
    generation = await running.run()
    await is_dead(running, generation, "provider_bad_answer")
    assert len(running.stub.of("GET", "/redirects/")) <= 6 * RETRIED
    assert not running.stub.of("GET", "/images/")


async def test_a_prediction_that_failed_is_ordered_again_with_a_new_key(running: Running) -> None:
    """Only then; a failed poll, or a lost answer, is no definite failure."""
    running.stub.creates, running.stub.progress = [paid_and_lost], ["processing"]
    accepted = await running.service.accepted(provider="poll")
    job = accepted["jobId"]
    async with running.service.working():
        await running.until_waiting(accepted)
        await running.wake(accepted)
        await running.until_waiting(accepted, executions=2)
        running.stub.polls = [status(503)]
        await running.wake(accepted)
        await running.until_waiting(accepted, executions=3)
        assert running.keys() == [f"{job}-0"] * 2
        running.stub.end("p1", "failed", error="CUDA out of memory on gpu7.internal.example")
        running.stub.progress = ["starting", "succeeded"]
        made = await running.finish(accepted)
    assert running.keys()[2:] == [f"{job}-0-1"]
    assert running.paid() == {f"{job}-0": 1, f"{job}-0-1": 1}
    await running.is_delivered(made, [f"{job}-0-1"])


@ON_SQLITE
async def test_a_prediction_that_the_provider_forgot_is_ordered_again(running: Running) -> None:
    running.stub.polls = [status(404)]
    made = await running.run(provider="poll")
    assert running.keys() == [f"{made['jobId']}-0", f"{made['jobId']}-0-1"]
    assert made["status"] == "completed"


@pytest.mark.parametrize("provider", ["openai", "poll"])
async def test_one_image_is_paid_whatever_happens_to_the_answers(running: Running, provider: str) -> None:
    running.stub.creates = [paid_and_lost, status(503), hangs_up, paid_and_lost]
    running.stub.progress = ["succeeded"]
    made = await running.run(provider=provider)
    key = f"{made['jobId']}-0"
    assert (made["status"], made["retryCount"]) == ("completed", 4)
    assert running.keys() == [key] * 5
    assert running.paid() == {key: 1}
    assert [charged for charged, *_ in await running.charges()] == [key]
    assert (await running.service.statement())[1:] == [("reserve", 1), ("commit", 1)]


@ON_SQLITE
async def test_an_image_that_cannot_be_downloaded_is_not_ordered_under_a_new_key(running: Running) -> None:
    running.stub.progress, running.stub.downloads = ["starting", "succeeded"], [status(502), html, hangs_up]
    made = await running.run(provider="poll")
    assert (made["status"], made["retryCount"]) == ("completed", 3)
    assert running.keys() == [f"{made['jobId']}-0"]
    assert running.paid() == {f"{made['jobId']}-0": 1}
