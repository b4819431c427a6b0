"""Opens what a command works on, and asks it what several commands need to know."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.lifecycle import Machine
from holdfast.model import Job
from holdfast.settings import Settings, load

if TYPE_CHECKING:
    from holdfast.engine import Engine

T = TypeVar("T")
BY = "command line"  # who the audit says it was


def settings_of(options: argparse.Namespace) -> Settings:
    return load(overrides={"database_url": options.database})


def with_engine(options: argparse.Namespace, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Run a command's work on the engine that the settings and `--database` name; its answer is ours.

    Workers hear of the jobs it makes.
    """
    from holdfast.assembly import open_all
    from holdfast.clock import Clock
    from holdfast.ids import Ids
    from holdfast.lifecycle import Lifecycles

    async def run() -> T:
        opened = await open_all(settings_of(options), lifecycles=Lifecycles(), clock=Clock(), ids=Ids())
        try:
            return await work(opened.engine)
        finally:
            await opened.close()

    return asyncio.run(run())


async def machines_of(engine: Engine, jobs: list[Job]) -> dict[str, Machine]:
    """By the id of each job, the lifecycle that it was created under: its words, its moves."""
    found = await engine.snapshots(jobs)
    return {job.id: found[job.policy].machine for job in jobs}
