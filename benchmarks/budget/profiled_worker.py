"""A worker process that profiles itself: python -m benchmarks.budget.profiled_worker URL JOBS

It ends after so many jobs, and prints the share of each module in its CPU time as JSON.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import sys
import time
from collections import defaultdict
from typing import Any

from benchmarks.implementations import TYPE
from holdfast.assembly.worker import WorkerOptions, work
from holdfast.sdk.app import App
from holdfast.settings import Settings

SLOTS = 100
_BUILT_IN = "~"


async def main(url: str, jobs: int) -> list[dict[str, Any]]:
    app, profile, all_done = App(Settings(database_url=url)), cProfile.Profile(time.thread_time), asyncio.Event()
    left = jobs

    @app.job(TYPE)
    async def nothing(to: str, subject: str, template: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            profile.disable()
            all_done.set()

    async with app:
        await work(app, WorkerOptions(concurrency=SLOTS), stop=all_done, on_ready=lambda worker: profile.enable())
    return shares(pstats.Stats(profile))


def shares(stats: pstats.Stats) -> list[dict[str, Any]]:
    """Built-in functions and those written in C count for the module that calls them."""
    spent: dict[str, float] = defaultdict(float)
    for (file, _, _), (_, _, own, _, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if file == _BUILT_IN and callers:
            for (caller, _, _), counts in callers.items():
                spent[module(caller)] += counts[2]
        else:
            spent[module(file)] += own
    total = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    return [{"module": name, "share": round(seconds / total, 4)} for name, seconds in ordered]


def module(file: str) -> str:
    """`holdfast.worker.executor`; of another library its first name."""
    for place in sorted(filter(None, sys.path), key=len, reverse=True):
        if file.startswith(f"{place}/"):
            words = file[len(place) + 1 :].removesuffix(".py").removesuffix("/__init__").split("/")
            return ".".join(words) if words[0] == "holdfast" else words[0]
    return "built-in functions" if file == _BUILT_IN else file.strip("<>").removeprefix("frozen ")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2])))))
