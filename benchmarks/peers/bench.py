"""One cell of one peer: a fresh place in its store, its driver, its workers, and the marks of its handlers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import Peer
from benchmarks.peers.environments import DRIVERS, Environment
from benchmarks.peers.marks import Marks
from benchmarks.peers.processes import Workers
from benchmarks.peers.stores import Place, Store, start
from benchmarks.report import ROOT

DRIVER_SECONDS = 400


@dataclass(frozen=True)
class Sizes:
    rounds: int = 2
    one: int = 2_000
    bulk: int = 20_000
    drain: int = 20_000
    behind: int = 1_000_000
    samples: int = 200
    seconds: float = 30.0  # of a cell at most
    enqueue_seconds: float = 5.0
    calm_seconds: float = 2.0  # from a worker's first jobs to when it counts as idle
    idle_seconds: float = 20.0
    watch_seconds: float = 120.0


QUICK = Sizes(
    rounds=1,
    one=50,
    bulk=200,
    drain=200,
    behind=2_000,
    samples=5,
    enqueue_seconds=2.0,
    calm_seconds=0.3,
    idle_seconds=1.0,
    watch_seconds=10.0,
)


class Stage:
    """What a cell needs of one peer: to enqueue, to work, to look."""

    def __init__(self, peer: Peer, environment: Environment, store: Store, place: Place, scratch: Path) -> None:
        self.peer, self.store, self.place = peer, store, place
        self.marks = Marks(scratch / "marks")
        self._environment, self._log = environment, scratch / "log"
        self._environ = environ(environment, place.url, self.marks.path)

    def enqueue(self, how: str, count: int, seconds: float, *more: str) -> dict[str, Any]:
        options = ["--count", str(count), "--seconds", str(seconds), *more]
        return drive(self.peer, self._environment, self._environ, how, *options)

    def fill(self, count: int, seconds: float = DRIVER_SECONDS / 2) -> int:
        how = "bulk" if "bulk" in self.peer.enqueue else "one"
        jobs = self.enqueue(how, count, seconds)["jobs"]
        self.place.settle()
        return int(jobs)

    def crowd(self, count: int) -> int:
        """So many ready jobs; copied inside the database where the peer's own call would take minutes."""
        if not self.peer.multiply:
            return self.fill(count)
        made = self.enqueue("bulk", min(count, 1_000), DRIVER_SECONDS / 2)["jobs"]
        factor = count // made - 1
        self.place.run(self.peer.multiply.format(factor=factor))
        self.place.settle()
        return int(made * (factor + 1))

    @contextmanager
    def workers(self, processes: int) -> Iterator[Workers]:
        workers = self.start(processes)
        try:
            yield workers
        finally:
            workers.stop()

    def start(self, processes: int) -> Workers:
        line = self.peer.work.format(bin=self._environment.programs, processes=processes, url=self.place.url)
        copies = 1 if "{processes}" in self.peer.work else processes
        return Workers([shlex.split(line)] * copies, self._environ, self._log)


class Bench:
    """The servers and environments of a run."""

    def __init__(self, environments: dict[str, Environment], sizes: Sizes, directory: Path) -> None:
        self.sizes = sizes
        self.environments = environments
        self._directory = directory
        self._stores: dict[str, Store] = {}

    def store(self, kind: str) -> Store:
        if kind not in self._stores:
            directory = self._directory / kind
            directory.mkdir()
            self._stores[kind] = start(kind, directory)
        return self._stores[kind]

    @contextmanager
    def stage(self, peer: Peer) -> Iterator[Stage]:
        environment = self.environments[peer.package]

        def prepare(url: str) -> None:
            drive(peer, environment, environ(environment, url, Path(os.devnull)), "prepare")

        with (
            self.store(peer.store).fresh(peer.package, prepare) as place,
            tempfile.TemporaryDirectory(dir=self._directory) as scratch,
        ):
            yield Stage(peer, environment, self.store(peer.store), place, Path(scratch))

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def environ(environment: Environment, url: str, marks: Path) -> dict[str, str]:
    programs = f"{environment.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    added = {"BENCH_URL": url, "BENCH_MARKS": str(marks), "BENCH_MODULES": str(environment.modules)}
    added |= {"PATH": programs, "PYTHONPATH": str(DRIVERS)}
    if environment.package == "holdfast":
        added["HOLDFAST_DATABASE_URL"] = url
        added["PYTHONPATH"] += f"{os.pathsep}{ROOT / 'src'}"  # of this tree, also in an environment of another one
    return {**os.environ, **added}


def drive(peer: Peer, environment: Environment, environ: dict[str, str], *words: str) -> dict[str, Any]:
    """Run the peer's driver to its end."""
    done = subprocess.run(
        [*_driver(peer, environment), *words],
        env=environ,
        cwd=DRIVERS,
        capture_output=True,
        text=True,
        timeout=DRIVER_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the driver of {peer.package} failed at {words[0]}:\n{done.stderr[-1500:]}")
    lines = done.stdout.splitlines()
    return dict(json.loads(lines[-1])) if lines else {}


def _driver(peer: Peer, environment: Environment) -> list[str]:
    name = f"{peer.package.replace('-', '_')}_jobs"
    if environment.modules:
        return [str(environment.programs / "node"), f"{name}.mjs"]
    return [str(environment.programs / "python"), "drive.py", name]
