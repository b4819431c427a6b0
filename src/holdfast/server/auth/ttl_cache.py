"""A cache with a short time to live: concurrent misses load a value once, and hits refresh in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from holdfast.clock import Clock

REFRESH_SECONDS = 1.0  # older entries are refreshed in the background
TTL_SECONDS = 2.0
ENTRIES_MAX = 10_000
UNKNOWN_AT_ONCE = 2  # concurrent loads of unknown keys, so that invented ones do not take all connections

T = TypeVar("T")


class _Cached(NamedTuple, Generic[T]):
    value: T
    at: float


class TtlCache(Generic[T]):
    """None is cached, too: there is no such key."""

    def __init__(self, load: Callable[[str], Awaitable[T]], clock: Clock) -> None:
        self._load, self._clock = load, clock
        self._entries: dict[str, _Cached[T]] = {}
        self._loading: dict[str, asyncio.Task[T]] = {}
        self._unknown = asyncio.Semaphore(UNKNOWN_AT_ONCE)

    def forget(self, key: str) -> None:
        """Drop an entry; a load that is under way is not stored."""
        self._entries.pop(key, None)
        self._loading.pop(key, None)

    async def get(self, key: str) -> T:
        entry = self._entries.get(key)
        age = TTL_SECONDS if entry is None else self._clock.monotonic() - entry.at
        if entry is not None and age < TTL_SECONDS:
            if age >= REFRESH_SECONDS and entry.value is not None:
                self._start_load(key)
            return entry.value
        return await asyncio.shield(self._start_load(key))  # other callers may wait for it

    def _start_load(self, key: str) -> asyncio.Task[T]:
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.create_task(self._load_bounded(key))
            loading.add_done_callback(lambda done: done.cancelled() or done.exception())  # callers get the exception
        return loading

    async def _load_bounded(self, key: str) -> T:
        try:
            entry = self._entries.get(key)
            if entry is not None and entry.value is not None:
                return await self._load_and_store(key)
            async with self._unknown:
                return await self._load_and_store(key)
        finally:
            if self._loading.get(key) is asyncio.current_task():
                del self._loading[key]

    async def _load_and_store(self, key: str) -> T:
        at = self._clock.monotonic()  # before the load: the value may be as old as that
        value = await self._load(key)
        if self._loading.get(key) is not asyncio.current_task():
            return value
        self._entries.pop(key, None)
        self._entries[key] = _Cached(value, at)
        while len(self._entries) > ENTRIES_MAX:
            self._entries.pop(next(iter(self._entries)))
        return value
