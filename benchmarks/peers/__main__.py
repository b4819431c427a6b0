"""Measure Holdfast beside its peers.

    python -m benchmarks.peers [--only holdfast,pgqueuer] [--cells drain-1,latency] [--quick] [--publish]

Peers take turns: a cell is measured for all of them, then the next, and all that again; the best round counts. With
--publish the results go to docs/performance/ and into docs/performance.md. Exit status 1 says that a cell failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.peers.bench import QUICK, Bench, Sizes
from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.peers.cells import Cell, Result, cells
from benchmarks.peers.environments import available
from benchmarks.peers.page import PLACE, publish
from benchmarks.peers.report import COSTS, SPEED, aims, table
from benchmarks.report import ROOT, print_table, write_results

WATCHED_AT_ONCE = 6  # recoveries: almost all of that time is waiting


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    peers = [peer for peer in PEERS if not options.only or {peer.name, peer.package} & set(options.only)]
    environments, missing = available(peer.package for peer in peers)
    for package, reason in missing.items():
        print(f"{package} is left out: {reason}")
    peers = [peer for peer in peers if peer.package in environments]
    chosen = [cell for cell in cells() if not options.cells or cell.name in options.cells]
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as directory:
        bench = Bench(environments, QUICK if options.quick else Sizes(), Path(directory))
        try:
            rounds = measure(bench, peers, chosen)
            stores = summary(bench, peers, chosen, rounds)
        finally:
            bench.close()
    show(stores)
    path = write_results(options.results, "peers", quick=options.quick, stores=stores)
    if options.publish:
        publish(path)
    return int(
        any("error" in cell for store in stores.values() for peer in store["peers"] for cell in peer["cells"].values())
    )


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=[], help="these peers, by name or package")
    parser.add_argument("--cells", type=_names, default=[], help=", ".join(cell.name for cell in cells()))
    parser.add_argument("--quick", action="store_true", help="one small round: does it still run?")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results", help="where the JSON goes")
    parser.add_argument("--publish", action="store_true", help=f"write {PLACE.relative_to(ROOT)} and its page")
    return parser.parse_args(words)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


# -- measuring -----------------------------------------------------------------------------------------------------

Rounds = dict[tuple[str, str], list[Result]]


def measure(bench: Bench, peers: list[Peer], chosen: list[Cell]) -> Rounds:
    found: Rounds = {}
    repeated = [cell for cell in chosen if cell.repeated]
    for number in range(bench.sizes.rounds):
        for cell in repeated:
            for peer in filter(cell.applies, peers):
                found.setdefault((peer.name, cell.name), []).append(_measured(bench, peer, cell, f"round {number + 1}"))
    for cell in chosen:
        if not cell.repeated:
            with ThreadPoolExecutor(WATCHED_AT_ONCE if cell.name == "recovery" else 1) as pool:
                jobs = {peer: pool.submit(_measured, bench, peer, cell, "") for peer in filter(cell.applies, peers)}
            found |= {(peer.name, cell.name): [job.result()] for peer, job in jobs.items()}
    return found


def _measured(bench: Bench, peer: Peer, cell: Cell, when: str) -> Result:
    try:
        result = cell.measure(bench, peer)
    except (RuntimeError, OSError) as error:
        result = {"error": str(error)}
    figures = "  ".join(f"{key} {_shown(value)}" for key, value in result.items())
    print(f"{when:8}  {cell.title:24}  {peer.name:28}  {figures}", flush=True)
    return result


def _shown(value: Any) -> str:
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and value < 1000
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )


# -- the results ---------------------------------------------------------------------------------------------------


def summary(bench: Bench, peers: list[Peer], chosen: list[Cell], rounds: Rounds) -> dict[str, Any]:
    stores: dict[str, Any] = {}
    for peer in peers:
        store = stores.setdefault(peer.store, {"about": bench.store(peer.store).about, "peers": []})
        environment = bench.environments[peer.package]
        store["peers"].append(
            {
                "name": peer.name,
                "package": peer.package,
                "version": environment.version,
                "node": environment.modules is not None,
                "setting": peer.setting,
                "command": peer.work.replace("{bin}/", "").replace("{url}", "URL"),
                "cells": {
                    cell.name: _best(cell, rounds[peer.name, cell.name]) for cell in chosen if cell.applies(peer)
                },
            }
        )
    return stores


def _best(cell: Cell, results: list[Result]) -> Result:
    good = [result for result in results if "error" not in result]
    return {**cell.best(good), "rounds": good} if good else results[0]


def show(stores: dict[str, Any]) -> None:
    for store in stores.values():
        for title, columns in (("jobs a second", SPEED), ("what a drained job costs, and an idle worker", COSTS)):
            header, rows = table(store["peers"], columns)
            if rows:
                print_table(f"{store['about']}: {title}", header, rows)
    if wanted := aims(stores):
        rows = [
            [
                aim.about,
                f"{aim.figure:.3g}",
                f"{'>=' if aim.at_least else '<='} {aim.limit:.3g}",
                "met" if aim.met else "MISSED",
            ]
            for aim in wanted
        ]
        print_table("What Holdfast set out to reach", ["", "is", "aim", ""], rows)


if __name__ == "__main__":
    sys.exit(main())
