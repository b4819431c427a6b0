"""Hand-written SQL on the same database: the ceiling that the figures are compared with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from holdfast.cli.bench.app import TEXT
from holdfast.engine import Engine
from holdfast.errors import StoreError
from holdfast.store.bench_baseline import Ceiling


@asynccontextmanager
async def by_hand(engine: Engine) -> AsyncIterator[Ceiling | None]:
    """Its table is there for so long; none where no table may be made."""
    ceiling = Ceiling(engine.store, msgspec.json.encode({"text": TEXT}).decode())
    try:
        await ceiling.make()
    except StoreError:  # a role that may only work with the tables there are
        yield None
        return
    try:
        yield ceiling
    finally:
        await ceiling.drop()
