"""`make test` runs a sample of what would take too long in every run; `make soak` runs all of it (`pytest --soak`).

`@pytest.mark.sampled(N)` on a test with many parameters: N of its cases on each store; with `of="name"`, N of all tests
that say so. `@pytest.mark.sampled` alone: the test decides by itself how much it does, by the fixture `sample`. The
seed is the commit: every commit tries other cases, and `--seed` repeats those of another one. Every run prints its
seed, and a run that failed prints it again.
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
    cases: dict[tuple[int, str, bool], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (marker := item.get_closest_marker("sampled")) and marker.args:
            group = marker.kwargs.get("of") or item.nodeid.partition("[")[0]
            cases[marker.args[0], group, item.get_closest_marker("postgres") is None].append(item)
    rest: set[pytest.Item] = set()
    for (number, group, _), found in cases.items():  # each by itself: a run of one file takes the same sample
        chance = random.Random(f"{sample.seed} {group}")
        rest |= set(found) - set(chance.sample(found, min(number, len(found))))
    return rest
