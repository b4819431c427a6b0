"""Opens what a command works on, and asks it what several commands need to know."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from holdfast.lifecycle import Machine
from holdfast.model import Job
from holdfast.settings import Settings, load

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.store import Tx

T = TypeVar("T")


def settings_of(options: argparse.Namespace) -> Settings:
    return load(overrides={"database_url": options.database})


def with_engine(options: argparse.Namespace, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Run a command's work on the engine that the settings and `--database` name; its answer is ours."""
    from holdfast.assembly import open_engine

    async def run() -> T:
        engine = await open_engine(settings_of(options))
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


async def time_of(engine: Engine) -> datetime:
    """The time by which the database decides."""
    from holdfast.store import q

    row = await engine.store.read(lambda tx: tx.one(q.clock))
    at: datetime = row["now_at"] if row else engine.rules.clock.now()
    return at


async def machines_of(engine: Engine, jobs: list[Job]) -> dict[str, Machine]:
    """By the id of each job, the lifecycle that it was created under: its words, its moves."""

    async def work(tx: Tx) -> dict[int, Machine]:
        registry = engine.rules.registry
        return {policy: (await registry.snapshot(tx, policy)).machine for policy in {job.policy for job in jobs}}

    found = await engine.store.read(work)
    return {job.id: found[job.policy] for job in jobs}
