"""Webhooks of the provider `poll`: the stub sends them, signed by an independent implementation."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.signatures import verify
from holdfast.workloads.generation.providers.base import Made
from tests.webhooks.receiver import Got, Receiver, receiving
from tests.workloads.generation.orders import opened, order, pending
from tests.workloads.generation.provider_stub import ProviderStub, provider_stub


@pytest.fixture
def stub() -> Iterator[ProviderStub]:
    with provider_stub() as stub:
        yield stub


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


def is_genuine(stub: ProviderStub, got: Got, seconds: float = 0) -> bool:
    return verify(stub.secret, got.headers, got.body, datetime.now(UTC) + timedelta(seconds=seconds))


@pytest.mark.parametrize("secret", ["", "a secret of plain text"])
async def test_a_webhook_before_the_answer_is_genuine(stub: ProviderStub, receiver: Receiver, secret: str) -> None:
    stub.secret = secret or stub.secret
    stub.webhooks_before_answer = 1
    async with opened("poll", stub) as provider:
        made = await provider.create(order(webhook_url=receiver.url))
    assert isinstance(made, Made)
    [got] = receiver.got
    assert is_genuine(stub, got)
    assert got.said["id"] == "p1"
    assert not is_genuine(stub, got, seconds=400)
    assert not verify(stub.secret, got.headers, got.body + b" ", datetime.now(UTC))


async def test_a_webhook_with_another_secret_is_not_genuine(stub: ProviderStub, receiver: Receiver) -> None:
    async with opened("poll", stub) as provider:
        await pending(provider, webhook_url=receiver.url)
    assert await asyncio.to_thread(stub.send_webhook, "p1", secret="the secret of another") == [200]
    assert not is_genuine(stub, receiver.got[0])


async def test_webhooks_may_come_many_times_and_after_a_cancel(stub: ProviderStub, receiver: Receiver) -> None:
    stub.webhooks_at_end, stub.webhooks_after_cancel = 2, 1
    async with opened("poll", stub) as provider:
        for key in ("first", "second"):
            await pending(provider, key=key, webhook_url=receiver.url)
        assert await asyncio.to_thread(stub.send_webhook, "p1", 10) == [200] * 10
        await asyncio.to_thread(stub.end, "p1")
        await provider.cancel("p2")
        got = await receiver.has(13)
    assert all(is_genuine(stub, each) for each in got)
    assert [each.said["status"] for each in got] == ["starting"] * 10 + ["succeeded"] * 2 + ["canceled"]
