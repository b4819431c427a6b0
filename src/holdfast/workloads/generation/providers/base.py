"""What a provider of images is: it makes one image for an order, at once or later."""

from __future__ import annotations

from typing import Protocol

import msgspec


class ImageOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One image. `key` is the idempotency key: the same on every attempt until a definite failure."""

    prompt: str
    negative_prompt: str | None
    width: int
    height: int
    seed: int
    style: str | None
    key: str
    webhook_url: str | None = None


def whole_prompt(prompt: str, style: str | None, negative_prompt: str | None) -> str:
    """As text alone, for providers that have no other fields."""
    more = (f"{name}: {text}" for name, text in (("Style", style), ("Avoid", negative_prompt)) if text)
    return "\n".join((prompt, *more))


class Made(msgspec.Struct, frozen=True):
    """The bytes of an image as the provider returned them: nothing about them is checked yet, but their number."""

    data: bytes
    cost_micros: int = 0


class Pending(msgspec.Struct, frozen=True):
    """The provider works on it: ask again after so many seconds."""

    task: str
    seconds: float


class Provider(Protocol):
    """Raises `ProviderError`, and nothing else."""

    name: str

    async def create(self, order: ImageOrder) -> Made | Pending: ...

    async def poll(self, order: ImageOrder, task: str) -> Made | Pending: ...

    async def cancel(self, task: str) -> None:
        """Best effort."""
        ...

    async def close(self) -> None: ...
