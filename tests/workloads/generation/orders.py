"""Orders for providers, and providers that ask the stub."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.providers import open_provider
from holdfast.workloads.generation.providers.base import ImageOrder, Made, Pending, Provider
from holdfast.workloads.generation.settings import Settings
from tests.workloads.generation.provider_stub import ProviderStub

KEY = "sk-0123456789-of-the-provider"


def order(key: str = "order-1", **changed: Any) -> ImageOrder:
    usual = {"prompt": "a lighthouse", "negative_prompt": None, "width": 64, "height": 32, "seed": 7, "style": None}
    return ImageOrder(**{**usual, **changed}, key=key)


def settings_for(stub: ProviderStub, **changed: Any) -> Settings:
    keys = {"openai_key": KEY, "poll_key": KEY, "openai_cost_micros": 40_000, "poll_cost_micros": 3000}
    return Settings(**{"openai_url": stub.openai_url, "poll_url": stub.poll_url, **keys, **changed})


@asynccontextmanager
async def opened(name: str, stub: ProviderStub, **changed: Any) -> AsyncIterator[Provider]:
    provider = open_provider(name, settings_for(stub, **changed))
    try:
        yield provider
    finally:
        await provider.close()


async def made_at_once(provider: Provider, **changed: Any) -> Made:
    made = await provider.create(order(**changed))
    assert isinstance(made, Made)
    return made


async def pending(provider: Provider, **changed: Any) -> Pending:
    made = await provider.create(order(**changed))
    assert isinstance(made, Pending)
    return made


async def failure_of(provider: Provider, **changed: Any) -> ProviderError:
    """The error of an order; no key is in it."""
    with pytest.raises(ProviderError) as failed:
        await provider.create(order(**changed))
    assert KEY not in failed.value.message
    assert failed.value.__suppress_context__ or failed.value.__context__ is None
    return failed.value
