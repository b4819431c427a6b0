"""The provider `poll`: predictions that are created, polled, announced and canceled."""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.providers.base import Made, Pending, Provider
from tests.workloads.generation.orders import KEY, failure_of, made_at_once, opened, order, pending
from tests.workloads.generation.provider_stub import (
    Answering,
    ProviderStub,
    hangs_up,
    html,
    paid_and_lost,
    provider_stub,
    silent,
    status,
    throttled,
    unsafe,
)

PNG = b"\x89PNG\r\n"
IN_BASE64 = b64encode(PNG).decode()


@pytest.fixture
def stub() -> Iterator[ProviderStub]:
    with provider_stub() as stub:
        yield stub


@pytest.fixture
async def provider(stub: ProviderStub) -> AsyncIterator[Provider]:
    async with opened("poll", stub, provider_timeout_seconds=20) as provider:
        yield provider


async def poll_failure(provider: Provider, task: str) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await provider.poll(order(), task)
    assert KEY not in failed.value.message
    return failed.value


# -- one order ---------------------------------------------------------------------------------------------------------


async def test_an_order_is_created_and_polled(provider: Provider, stub: ProviderStub) -> None:
    created = await pending(provider)
    assert created == Pending("p1", 2.0)
    assert await provider.poll(order(), created.task) == created
    made = await provider.poll(order(), created.task)
    assert made == Made(stub.images["order-1"], 3000)
    first, *polls = stub.requests[:3]
    assert first.body == {"input": {"prompt": "a lighthouse", "width": 64, "height": 32, "seed": 7, "num_outputs": 1}}
    assert first.headers["idempotency-key"] == "order-1"
    assert {each.headers["authorization"] for each in (first, *polls)} == {f"Bearer {KEY}"}
    assert {each.path for each in polls} == {"/v1/predictions/p1"}


async def test_all_that_is_known_is_handed_on(provider: Provider, stub: ProviderStub) -> None:
    url = "https://images.example.com/hook?job=1"
    await pending(provider, negative_prompt="boats", style="ink", webhook_url=url)
    body = stub.requests[0].body
    assert (body["input"]["negative_prompt"], body["input"]["style"]) == ("boats", "ink")
    assert (body["webhook"], body["webhook_events_filter"]) == (url, ["completed"])


async def test_the_same_key_is_the_same_prediction(provider: Provider, stub: ProviderStub) -> None:
    stub.creates = [paid_and_lost]
    assert (await failure_of(provider)).code == "provider_unavailable"
    assert (await pending(provider)).task == (await pending(provider)).task == "p1"
    assert (await pending(provider, key="order-2")).task == "p2"
    assert stub.paid == {"order-1": 1, "order-2": 1}


OUTPUTS: dict[str, Any] = {
    "a text": {"output": f"data:image/png;base64,{IN_BASE64}"},
    "upper case": {"output": f"DATA:image/png;BASE64,{IN_BASE64}"},
    "a list": {"output": [f"data:;base64,{IN_BASE64}", "http://10.0.0.1/"]},
    "an object": {"output": {"url": f"data:;base64,{IN_BASE64}"}},
    "base64": {"output": {"b64_json": IN_BASE64}},
    "lines of base64": {"output": {"b64_json": f"{IN_BASE64[:4]}\r\n{IN_BASE64[4:]}\n"}},
    "objects": {"output": [{"b64_json": IN_BASE64}]},
    "images": {"images": [{"url": f"data:;base64,{IN_BASE64}"}]},
    "images in the output": {"output": {"images": [f"data:;base64,{IN_BASE64}"]}},
    "data": {"output": None, "data": [{"b64_json": IN_BASE64}]},
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("word", ["succeeded", "completed", "success", "COMPLETED"])
async def test_the_image_is_found_in_any_output(provider: Provider, stub: ProviderStub, output: str, word: str) -> None:
    stub.creates = [status(200, {"status": word, **OUTPUTS[output]})]
    assert (await made_at_once(provider)).data == PNG


@pytest.mark.parametrize(
    "word", ["queued", "starting", "pending", "processing", "running", "in_progress", "IN-PROGRESS"]
)
async def test_a_prediction_in_progress_is_pending(provider: Provider, stub: ProviderStub, word: str) -> None:
    stub.progress = [word]
    assert await provider.poll(order(), (await pending(provider)).task) == Pending("p1", 2.0)


@pytest.mark.parametrize(("said", "seconds"), [("7", 7), ("0", 1), ("600", 30), ("soon", 2)])
async def test_the_pause_is_that_of_the_provider(
    provider: Provider, stub: ProviderStub, said: str, seconds: float
) -> None:
    stub.creates = [status(202, {"id": "p9", "status": "queued"}, retry_after=said)]
    assert await pending(provider) == Pending("p9", seconds)


@pytest.mark.parametrize(
    ("cost", "micros"),
    [(0.04, 40_000), (0, 0), (1, 1_000_000), (-1, 3000), (1e300, 3000), (True, 3000), ("0.04", 3000), (None, 3000)],
)
async def test_the_cost_may_be_in_the_answer(provider: Provider, stub: ProviderStub, cost: Any, micros: int) -> None:
    done = {"status": "succeeded", "output": {"b64_json": IN_BASE64}}
    stub.creates = [status(200, done | {"metrics": {"cost": cost}}), status(200, done | {"cost": cost, "metrics": 7})]
    for _ in range(2):
        assert (await made_at_once(provider)).cost_micros == micros


# -- ends without an image ---------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[dict[str, Any], str, str, bool]] = {
    "failed": ({"status": "failed", "error": "CUDA out of memory"}, "provider_failed", "transient", True),
    "an error object": ({"status": "error", "error": {"code": "x"}}, "provider_failed", "transient", True),
    "nsfw": ({"status": "failed", "error": "NSFW content detected."}, "provider_rejected", "rejected", True),
    "a policy": ({"status": "failed", "error": "violates the content policy"}, "provider_rejected", "rejected", True),
    "moderation": ({"status": "error", "error": {"code": "moderation"}}, "provider_rejected", "rejected", True),
    **{word: ({"status": word}, "provider_failed", "transient", True) for word in ("canceled", "cancelled", "aborted")},
    "expired": ({"status": "expired"}, "provider_failed", "transient", True),
    **{
        word: ({"status": word}, "provider_rejected", "rejected", True)
        for word in ("rejected", "nsfw", "blocked", "moderated")
    },
    "an unknown word": ({"status": "sleeping"}, "provider_bad_answer", "transient", False),
    "no status": ({"output": "data:;base64,AAAA"}, "provider_bad_answer", "transient", False),
    "a status that is no text": ({"status": {"a": 1}}, "provider_bad_answer", "transient", False),
    "no output": ({"status": "succeeded", "output": None}, "provider_bad_answer", "transient", False),
    "an empty list": ({"status": "succeeded", "output": []}, "provider_bad_answer", "transient", False),
    "nested lists": ({"status": "succeeded", "output": [[[[[["x"]]]]]]}, "provider_bad_answer", "transient", False),
}


@pytest.mark.parametrize("end", ENDS)
async def test_an_end_without_an_image_is_an_error(provider: Provider, stub: ProviderStub, end: str) -> None:
    """The same from the answer to the order and from a poll."""
    found, *expected = ENDS[end]
    stub.creates, stub.polls = [status(201, {"id": "p1", **found})], [status(200, {"id": "p1", **found})]
    for failed in (await failure_of(provider), await poll_failure(provider, "p1")):
        assert [failed.code, failed.kind, failed.definite] == expected
        assert len(failed.message) < 400


async def test_errors_of_predictions_are_short_and_have_no_keys(provider: Provider, stub: ProviderStub) -> None:
    stub.creates = [status(201, {"id": "p1", "status": "failed", "error": f"Bearer {KEY} \x1b {'x' * 9999}"})]
    assert (await failure_of(provider)).message.startswith("the prediction is failed: *** xxx")


@pytest.mark.parametrize("name", [None, "", 7, ["p1"], ".", "..", "a b", "ü", "x" * 201, "a\nb"], ids=repr)
async def test_an_id_is_a_short_text(provider: Provider, stub: ProviderStub, name: Any) -> None:
    stub.creates = [status(201, {"id": name, "status": "starting"})]
    failed = await failure_of(provider)
    assert (failed.code, failed.definite) == ("provider_bad_answer", False)


# -- the URL to poll ---------------------------------------------------------------------------------------------------


async def test_an_id_is_quoted(provider: Provider, stub: ProviderStub) -> None:
    stub.creates = [status(201, {"id": "../a?b#c", "status": "starting"})]
    stub.polls = [status(200, {"status": "processing"})]
    created = await pending(provider)
    assert await provider.poll(order(), created.task) == created
    assert stub.requests[1].path == "/v1/predictions/..%2Fa%3Fb%23c"


async def test_the_url_of_the_answer_is_polled_if_it_is_of_the_same_api(provider: Provider, stub: ProviderStub) -> None:
    urls = {"get": f"{stub.url}/v1/predictions/p1?full=1", "cancel": "http://10.0.0.1/"}
    stub.creates = [status(201, {"id": "p1", "status": "starting", "urls": urls})]
    stub.polls = [status(200, {"id": "p1", "status": "processing"})]
    created = await pending(provider)
    assert created.task == "p1 /v1/predictions/p1?full=1"
    assert await provider.poll(order(), created.task) == created
    assert stub.requests[1].path == "/v1/predictions/p1?full=1"


@pytest.mark.parametrize(
    "urls",
    [
        {"get": "http://127.0.0.1:1/v1/predictions/p1"},
        {"get": "https://api.example.com/v1/predictions/p1"},
        {"get": "file:///etc/passwd"},
        {"get": 7},
        {"get": "/v1/predictions/p1"},
        {},
        None,
        "http://127.0.0.1/",
    ],
    ids=repr,
)
async def test_no_other_url_gets_the_key(provider: Provider, stub: ProviderStub, urls: Any) -> None:
    stub.creates = [status(201, {"id": "p1", "status": "starting", "urls": urls})]
    assert (await pending(provider)).task == "p1"


# -- errors of the API -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [404, 410])
async def test_a_forgotten_prediction_has_failed(provider: Provider, stub: ProviderStub, code: int) -> None:
    stub.polls = [status(code)]
    failed = await poll_failure(provider, "p1")
    assert (failed.code, failed.kind, failed.definite) == ("provider_failed", "transient", True)


FAULTS: dict[str, tuple[Answering, str, str]] = {
    "a server error": (status(503, retry_after="9"), "provider_unavailable", "transient"),
    "a closed connection": (hangs_up, "provider_unavailable", "transient"),
    "throttling": (throttled("9"), "provider_throttled", "throttled"),
    "a wrong key": (status(401, {"title": "Unauthenticated", "detail": "no"}), "provider_denied", "transient"),
    "no credit": (status(402, {"detail": "Insufficient credit"}), "provider_quota", "permanent"),
    "a refusal": (status(405), "provider_refused", "permanent"),
    "a verdict": (unsafe, "provider_rejected", "rejected"),
    "HTML": (html, "provider_bad_answer", "transient"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_errors_of_the_api_are_those_of_every_provider(
    provider: Provider, stub: ProviderStub, fault: str
) -> None:
    """The refusal of a poll says nothing about the prediction: the next attempt keeps the key."""
    answering, code, kind = FAULTS[fault]
    stub.creates, stub.polls = [answering], [answering]
    created, polled = await failure_of(provider), await poll_failure(provider, "p1")
    for failed in (created, polled):
        assert (failed.code, failed.kind) == (code, kind)
        assert failed.retry_after == (9 if fault in ("a server error", "throttling") else None)
    assert created.definite is (code in ("provider_refused", "provider_rejected"))
    assert not polled.definite


async def test_a_slow_poll_is_a_timeout(stub: ProviderStub) -> None:
    stub.polls = [silent(30)]
    async with opened("poll", stub, provider_timeout_seconds=1) as provider:
        failed = await poll_failure(provider, "p1")
    assert (failed.code, failed.definite) == ("provider_timeout", False)


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_a_prediction_is_canceled(provider: Provider, stub: ProviderStub) -> None:
    task = (await pending(provider)).task
    await provider.cancel(task)
    assert stub.of("POST", "/v1/predictions/p1/cancel")
    assert (await poll_failure(provider, task)).definite


async def test_errors_of_a_cancel_are_ignored(stub: ProviderStub) -> None:
    async with opened("poll", stub) as provider:
        await provider.cancel("unknown")
    async with opened("poll", stub, poll_url="http://127.0.0.1:1/v1") as provider:
        await provider.cancel("p1")
