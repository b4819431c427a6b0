"""Hand-written SQL on the same database, as the baseline for `holdfast bench`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from holdfast.cli.bench.app import TEXT
from holdfast.engine import Engine
from holdfast.errors import StoreError
from holdfast.store.bench_baseline import BenchBaseline


@asynccontextmanager
async def by_hand(engine: Engine) -> AsyncIterator[BenchBaseline | None]:
    """The baseline, with its table; None if the database role may not create tables."""
    baseline = engine.bench.baseline(msgspec.json.encode({"text": TEXT}).decode())
    try:
        await baseline.make()
    except StoreError:  # the role has no CREATE privilege
        yield None
        return
    try:
        yield baseline
    finally:
        await baseline.drop()
