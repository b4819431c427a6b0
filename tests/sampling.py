"""`make test` runs a sample of what would take too long in every run; `make soak` runs all of it (`pytest --soak`).

`@pytest.mark.sampled(N)` on a test with many parameters: N of its cases on each store. `@pytest.mark.sampled` alone:
the test decides by itself how much it does, by the fixture `sample`. The seed is the commit: every commit tries other
cases; `--seed` repeats those of another one. Every run prints its seed, and a run that failed prints it again.
"""

import random
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run every case of the tests that are sampled")
    parser.addoption("--seed", default=None, help="choose the samples by this text instead of the commit")


@cache
def commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return head.stdout.strip()[:12] or "no commit"


@dataclass(frozen=True)
class Sample:
    seed: str
    soak: bool

    @classmethod
    def of(cls, config: pytest.Config) -> "Sample":
        return cls(str(config.getoption("seed") or commit()), bool(config.getoption("soak")))

    @property
    def number(self) -> int:
        """The seed of a generator that wants a number."""
        return int(sha256(self.seed.encode()).hexdigest()[:8], 16)

    def __str__(self) -> str:
        return f"{'every case, not a sample' if self.soak else 'samples'}: --seed {self.seed}"


def left_out(config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """The cases that this run does without."""
    sample = Sample.of(config)
    if sample.soak:
        return set()
    cases: dict[tuple[str, bool], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (marker := item.get_closest_marker("sampled")) and marker.args:
            cases[item.nodeid.partition("[")[0], item.get_closest_marker("postgres") is None].append(item)
    chance, rest = random.Random(sample.seed), set[pytest.Item]()
    for found in cases.values():
        [number] = found[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        rest |= set(found) - set(chance.sample(found, min(number, len(found))))
    return rest
