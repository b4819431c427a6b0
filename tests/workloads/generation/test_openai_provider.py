"""The provider `openai`, against a server that answers in every way."""

import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.workloads.generation.faults import MESSAGES, ProviderError
from holdfast.workloads.generation.providers.base import Provider
from tests.workloads.generation.orders import KEY, failure_of, made_at_once, opened, order
from tests.workloads.generation.provider_stub import (
    Answering,
    ProviderStub,
    endless,
    error,
    hangs_up,
    html,
    image_url,
    no_quota,
    paid_and_lost,
    provider_stub,
    raw,
    redirect,
    short,
    silent,
    status,
    throttled,
    unsafe,
)

PNG = b"\x89PNG\r\n"


@pytest.fixture
def stub() -> Iterator[ProviderStub]:
    with provider_stub() as stub:
        yield stub


@pytest.fixture
async def provider(stub: ProviderStub) -> AsyncIterator[Provider]:
    async with opened("openai", stub, provider_timeout_seconds=20) as provider:
        yield provider


async def test_an_order_is_one_request(provider: Provider, stub: ProviderStub) -> None:
    made = await made_at_once(provider, negative_prompt="people, boats", style="watercolor")
    assert (made.data, made.cost_micros) == (stub.images["order-1"], 40_000)
    [request] = stub.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["idempotency-key"] == "order-1"
    assert request.body == {
        "model": "gpt-image-1",
        "prompt": "a lighthouse\nStyle: watercolor\nAvoid: people, boats",
        "n": 1,
        "size": "64x32",
    }


@pytest.mark.parametrize(
    ("model", "wanted"), [("dall-e-3", "b64_json"), ("dall-e-2", "b64_json"), ("gpt-image-2", None)]
)
async def test_only_dall_e_is_asked_for_base64(stub: ProviderStub, model: str, wanted: str | None) -> None:
    async with opened("openai", stub, openai_model=model) as provider:
        await made_at_once(provider)
    assert stub.requests[0].body.get("response_format") == wanted


async def test_an_image_is_downloaded_without_the_key_of_the_api(provider: Provider, stub: ProviderStub) -> None:
    stub.creates = [image_url]
    assert (await made_at_once(provider)).data == stub.images["order-1"]
    [download] = stub.of("GET")
    assert "authorization" not in download.headers
    assert not [text for text in download.headers.values() if KEY in text or "order-1" in text]


async def test_the_same_key_is_the_same_image(provider: Provider, stub: ProviderStub) -> None:
    stub.creates = [paid_and_lost]
    assert (await failure_of(provider)).code == "provider_unavailable"
    made = [await made_at_once(provider) for _ in range(2)]
    assert made[0] == made[1]
    assert stub.paid == {"order-1": 1}
    assert await made_at_once(provider, key="order-2") != made[0]


async def test_a_data_url_is_an_image(provider: Provider, stub: ProviderStub) -> None:
    for found in ({"url": f"data:image/png;base64,{b64encode(PNG).decode()}"}, {"b64_json": b64encode(PNG).decode()}):
        stub.creates = [status(200, {"data": [found]})]
        assert (await made_at_once(provider)).data == PNG


UNAVAILABLE, DENIED, REFUSED = "provider_unavailable", "provider_denied", "provider_refused"
THROTTLED, QUOTA, REJECTED, BAD = "provider_throttled", "provider_quota", "provider_rejected", "provider_bad_answer"
PERMANENT, TRANSIENT = "permanent", "transient"

FAULTS: dict[str, tuple[Answering, str, str, bool]] = {  # the code, the kind, whether it is definite
    **{f"a server error {code}": (status(code), UNAVAILABLE, TRANSIENT, False) for code in (500, 502, 503, 504, 529)},
    "a page of a proxy": (status(502, b"<html>Bad Gateway"), UNAVAILABLE, TRANSIENT, False),
    "a closed connection": (hangs_up, UNAVAILABLE, TRANSIENT, False),
    "half an answer": (short(), UNAVAILABLE, TRANSIENT, False),
    "throttling": (throttled(), THROTTLED, "throttled", False),
    "throttling without a body": (status(429), THROTTLED, "throttled", False),
    "no quota": (no_quota, QUOTA, PERMANENT, False),
    "no quota by type": (status(429, {"error": {"type": "insufficient_quota"}}), QUOTA, PERMANENT, False),
    "a billing limit": (error(400, "billing_hard_limit_reached"), QUOTA, PERMANENT, False),
    "a payment": (status(402), QUOTA, PERMANENT, False),
    "a verdict": (unsafe, REJECTED, "rejected", True),
    "a wrong key": (error(401, "invalid_api_key", f"Incorrect API key: {KEY}"), DENIED, TRANSIENT, False),
    "no permission": (error(403, "unsupported_country"), DENIED, TRANSIENT, False),
    "an unknown model": (error(404, "model_not_found"), REFUSED, PERMANENT, True),
    "an invalid size": (error(400, "invalid_value", "Invalid size"), REFUSED, PERMANENT, True),
    "an unprocessable order": (status(422, {"detail": [{"msg": "no"}]}), REFUSED, PERMANENT, True),
    "a text about safety": (error(400, "invalid_value", "safety must be a number"), REFUSED, PERMANENT, True),
    **{f"a repetition {code}": (status(code), UNAVAILABLE, TRANSIENT, False) for code in (408, 409, 425)},
    "a redirect of the API": (redirect("http://127.0.0.1:1/"), BAD, TRANSIENT, False),
    "HTML": (html, BAD, TRANSIENT, False),
    "nothing": (status(200), BAD, TRANSIENT, False),
    "not UTF-8": (status(200, b'{"a": "\xff"}'), BAD, TRANSIENT, False),
    "nested JSON": (status(200, b"[" * 100_000), BAD, TRANSIENT, False),
    "a list": (status(200, []), BAD, TRANSIENT, False),
    "no image": (status(200, {"data": []}), BAD, TRANSIENT, False),
    "an empty image": (status(200, {"data": [{"b64_json": ""}]}), BAD, TRANSIENT, False),
    "an image of null": (status(200, {"data": [{"b64_json": None, "url": None}]}), BAD, TRANSIENT, False),
    "a number": (status(200, {"data": 7}), BAD, TRANSIENT, False),
    "invalid base64": (status(200, {"data": [{"b64_json": "no base64!"}]}), BAD, TRANSIENT, False),
    "a data URL without base64": (status(200, {"data": [{"url": "data:image/png,x"}]}), BAD, TRANSIENT, False),
    "not HTTP": (raw(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"), BAD, TRANSIENT, False),
    "a large image": (status(200, {"data": [{"b64_json": "A" * 2000}]}), "image_too_large", PERMANENT, False),
    "an endless answer": (endless(), "image_too_large", PERMANENT, False),
    "an endless error": (raw(b"HTTP/1.1 503 No\r\n\r\n", b"x" * 3_000_000), UNAVAILABLE, TRANSIENT, False),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_error_has_a_code_and_says_whether_retrying_helps(stub: ProviderStub, fault: str) -> None:
    answering, code, kind, definite = FAULTS[fault]
    stub.creates = [answering]
    async with opened("openai", stub, max_image_bytes=1024) as provider:
        failed = await failure_of(provider)
    assert (failed.code, failed.kind, failed.definite) == (code, kind, definite)
    assert failed.code in MESSAGES
    assert len(failed.message) < 400
    assert failed.message.isprintable()
    assert len(stub.requests) == 1


@pytest.mark.parametrize("code", [400, 403, 422])
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "content_policy_violation"}},
        {"error": {"code": "moderation_blocked", "type": "image_generation_user_error"}},
        {"error": {"code": None, "type": "safety_violation", "message": "no"}},
        {"error": {"code": "BadRequest", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        {"error": {"code": "contentFilter"}},
        {"code": "NSFW"},
        {"detail": {"code": "content_filter"}},
        {"error": {"code": None, "message": "Your request was rejected as a result of our safety system."}},
        {"error": {"message": "It does not comply with our content policy.", "type": "invalid_request_error"}},
    ],
)
async def test_verdicts_of_safety_systems_are_rejections(
    provider: Provider, stub: ProviderStub, code: int, body: dict[str, Any]
) -> None:
    stub.creates = [status(code, body)]
    failed = await failure_of(provider)
    assert (failed.code, failed.kind, failed.definite) == ("provider_rejected", "rejected", True)


async def test_a_complaint_about_a_parameter_is_no_verdict(provider: Provider, stub: ProviderStub) -> None:
    stub.creates = [status(400, {"error": {"code": None, "message": "Unknown parameter: 'moderation'."}})]
    assert (await failure_of(provider)).code == "provider_refused"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("0", 1), ("1.5", 1.5), ("999999", 3600), ("", None), ("soon", None), ("-5", None), ("nan", None)],
)
@pytest.mark.parametrize("code", [429, 503])
async def test_the_pause_that_the_provider_asks_for_is_bounded(
    provider: Provider, stub: ProviderStub, code: int, said: str, seconds: float | None
) -> None:
    stub.creates = [status(code, retry_after=said)]
    assert (await failure_of(provider)).retry_after == seconds


async def test_the_pause_may_be_a_date(provider: Provider, stub: ProviderStub) -> None:
    now = datetime.now(UTC)
    dates = [format_datetime(now + timedelta(seconds=seconds), usegmt=True) for seconds in (120, -120)]
    stub.creates = [throttled(date) for date in dates]
    assert (await failure_of(provider)).retry_after == pytest.approx(120, abs=15)
    assert (await failure_of(provider)).retry_after == 1


async def test_a_slow_provider_is_a_timeout(stub: ProviderStub) -> None:
    stub.creates = [silent(30)]
    async with opened("openai", stub, provider_timeout_seconds=1) as provider:
        failed = await failure_of(provider)
    assert (failed.code, failed.kind, failed.definite) == ("provider_timeout", TRANSIENT, False)


async def test_the_time_limit_is_for_the_answer_and_the_download_together(stub: ProviderStub) -> None:
    stub.creates, stub.downloads = [image_url], [silent(30)]
    async with opened("openai", stub, provider_timeout_seconds=1) as provider:
        assert (await failure_of(provider)).code == "provider_timeout"


async def test_a_provider_that_is_down_is_unavailable(stub: ProviderStub) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with opened("openai", stub, openai_url=f"http://127.0.0.1:{free.getsockname()[1]}/v1") as provider:
            failed = await failure_of(provider)
    assert (failed.code, failed.kind) == ("provider_unavailable", TRANSIENT)


async def test_messages_are_short_and_have_no_keys(provider: Provider, stub: ProviderStub) -> None:
    text = f"a\x1b[31m\nb Bearer abc {KEY} sk-another-key-123 {'x' * 5000}"
    stub.creates = [error(400, "invalid_value", text), error(401, "no", f"{'y' * 280}{KEY}")]
    shown = (await failure_of(provider)).message
    assert shown.startswith("the provider answered with 400: a [31m b *** *** *** xxx")
    assert len(shown) < 350
    assert "sk-" not in (await failure_of(provider)).message


async def test_there_is_nothing_to_poll_or_cancel(provider: Provider, stub: ProviderStub) -> None:
    with pytest.raises(ProviderError) as failed:
        await provider.poll(order(), "task")
    assert failed.value.definite
    await provider.cancel("task")
    assert not stub.requests


async def test_settings_that_cannot_work_are_an_error_at_once(stub: ProviderStub) -> None:
    with pytest.raises(Invalid):
        async with opened("openai", stub, openai_key="two\nlines"):
            pass
