"""Measure Holdfast beside its peers.

    python -m benchmarks.peers [--only holdfast,pgqueuer] [--cells drain-1,latency] [--rounds 2] [--quick] [--publish]

Peers take turns: a cell is measured for all of them, then the next, and all that again; the best round counts. A cell
that fails is measured once more. With --publish the results go to docs/performance/ and docs/performance.md, if every
peer and every cell is there. Exit status 1 says that a cell failed, or that the run is not published.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import http, load
from benchmarks.databases import host
from benchmarks.peers.aims import aims
from benchmarks.peers.bench import QUICK, Bench, Sizes
from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.peers.cells import Cell, Result, cells
from benchmarks.peers.complete import HTTP, Partial
from benchmarks.peers.environments import available
from benchmarks.peers.page import PLACE, publish
from benchmarks.peers.report import COSTS, SPEED, table
from benchmarks.report import ROOT, print_table, write_results

WATCHED_AT_ONCE = 4  # recoveries: almost all of their time is waiting


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    peers = [peer for peer in PEERS if not options.only or {peer.name, peer.package} & set(options.only)]
    environments, lacking = available(peer.package for peer in peers)
    for package, reason in lacking.items():
        print(f"{package} is left out: {reason}")
    if options.publish and (reasons := _unpublishable(options, lacking)):
        print(Partial(reasons))
        return 1
    before = load.look()
    print(load.told(before))
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as directory:
        sizes = QUICK if options.quick else replace(Sizes(), rounds=options.rounds)
        bench = Bench(environments, sizes, Path(directory))
        try:
            chosen = [cell for cell in cells() if not options.cells or cell.name in options.cells]
            run = Run(bench, [peer for peer in peers if peer.package in environments], chosen)
            run.measure()
            stores = run.summary()
        finally:
            bench.close()
    posted = _http(options) if not options.cells or HTTP in options.cells else None
    path = write_results(options.results, "peers", quick=options.quick, stores=stores, http=posted, load=before)
    show(json.loads(path.read_text()))
    if options.publish:
        try:
            publish(path)
        except Partial as partial:
            print(partial)
            return 1
    return int(run.failed)


def _unpublishable(options: argparse.Namespace, lacking: dict[str, str]) -> list[str]:
    """What is known to be missing before anything is measured: a run takes an hour."""
    given = {"--quick": options.quick, "--only": options.only, "--cells": options.cells}
    given["--rounds below 2"] = options.rounds < Sizes.rounds
    return [
        *(f"what {option} leaves out" for option, is_given in given.items() if is_given),
        *(f"{package}: {reason}" for package, reason in lacking.items()),
    ]


def _http(options: argparse.Namespace) -> list[Result]:
    """`POST /jobs` beside the bare endpoint, and the like."""
    with host("postgres") as machine:
        taken = asyncio.run(http.measure(machine, http.QUICK if options.quick else http.Sizes()))
    return http.judged(taken)


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers = sorted({name for peer in PEERS for name in (peer.name, peer.package)})
    parser.add_argument("--only", type=_chosen(peers), default=[], help="these peers, by name or package")
    known = [*(cell.name for cell in cells()), HTTP]
    parser.add_argument("--cells", type=_chosen(known), default=[], help=f"these cells of {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="one small round: does it still run?")
    parser.add_argument("--rounds", type=int, default=Sizes.rounds, help="measure each cell so often; the best counts")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results", help="where the JSON goes")
    parser.add_argument("--publish", action="store_true", help=f"show the run in {PLACE.relative_to(ROOT)}")
    return parser.parse_args(words)


def _chosen(known: list[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        asked = [name.strip() for name in text.split(",") if name.strip()]
        if unknown := set(asked) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} not among {', '.join(known)}")
        return asked

    return names


class Run:
    """The cells of the chosen peers, with every round of each."""

    def __init__(self, bench: Bench, peers: list[Peer], chosen: list[Cell]) -> None:
        self._bench, self._peers, self._cells = bench, peers, chosen
        self._rounds: dict[tuple[str, str], list[Result]] = {}
        self._done, self._all = 0, sum(len(self._who(cell)) * self._times(cell) for cell in chosen)
        self.failed = False

    def measure(self) -> None:
        for _ in range(self._bench.sizes.rounds):
            for cell in filter(lambda cell: cell.repeated, self._cells):
                for peer in self._who(cell):
                    self._measure(cell, peer)
        for cell in filter(lambda cell: not cell.repeated, self._cells):
            with ThreadPoolExecutor(WATCHED_AT_ONCE if cell.watches else 1) as pool:
                list(pool.map(lambda peer, cell=cell: self._measure(cell, peer), self._who(cell)))

    def _who(self, cell: Cell) -> list[Peer]:
        return [peer for peer in self._peers if cell.applies(peer)]

    def _times(self, cell: Cell) -> int:
        return self._bench.sizes.rounds if cell.repeated else 1

    def _measure(self, cell: Cell, peer: Peer) -> None:
        began = time.monotonic()
        result = self._tried(cell, peer)
        if "error" in result:  # an hour of figures must not be lost with one of them
            print(f"{peer.name}: {cell.title} failed, once more: {result['error']}", flush=True)
            result = self._tried(cell, peer)
            self.failed = self.failed or "error" in result
        self._rounds.setdefault((peer.name, cell.name), []).append(result)
        self._done += 1
        figures = "  ".join(f"{key} {_shown(value)}" for key, value in result.items())
        took = f"{time.monotonic() - began:4.0f} s"
        print(f"{self._done:3}/{self._all} {took}  {cell.title:24} {peer.name:29} {figures}", flush=True)

    def _tried(self, cell: Cell, peer: Peer) -> Result:
        try:
            return cell.measure(self._bench, peer)
        except Exception as error:
            return {"error": str(error) or type(error).__name__}

    def summary(self) -> dict[str, Any]:
        """By store: what it is, and its peers with the best round of each cell."""
        stores: dict[str, Any] = {}
        for peer in self._peers:
            about = self._bench.store(peer.store).about
            stores.setdefault(peer.store, {"about": about, "peers": []})["peers"].append(self._about(peer))
        return stores

    def _about(self, peer: Peer) -> Result:
        environment = self._bench.environments[peer.package]
        return {
            "name": peer.name,
            "package": peer.package,
            "version": environment.version,
            "node": environment.modules is not None,
            "setting": peer.setting,
            "reference": peer.reference,
            "command": peer.work.replace("{bin}/", "").replace("{processes}", "N").replace("{url}", "URL"),
            "cells": {cell.name: self._best(cell, peer) for cell in self._cells if cell.applies(peer)},
        }

    def _best(self, cell: Cell, peer: Peer) -> Result:
        rounds = self._rounds[peer.name, cell.name]
        good = [result for result in rounds if "error" not in result]
        return {**cell.best(good), "rounds": good} if good else rounds[0]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return str(value)


def show(results: dict[str, Any]) -> None:
    for store in results["stores"].values():
        for title, columns in (("jobs a second", SPEED), ("what a drained job costs, and an idle worker", COSTS)):
            header, rows = table(store["peers"], columns)
            if rows:
                print_table(f"{store['about']}: {title}", header, rows)
    if wanted := [[*aim.told(), "met" if aim.met else "MISSED"] for aim in aims(results)]:
        print_table("What Holdfast is to reach", ["", "is", "aim", ""], wanted)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and workers must not outlive the run
    sys.exit(main())
