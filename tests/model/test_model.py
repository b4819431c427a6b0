"""Random histories of 60 steps each, on each store, compared with the reference model.

`make test` runs 50 that the commit chooses, `make soak` 500. `HOLDFAST_TEST_MODEL_RUNS`, `_STEPS` and `_SEED` choose
more, longer or other lives.
"""

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.lifecycle import Lifecycles
from tests.model.database import ModelDatabase
from tests.model.machine import EngineBesideModel
from tests.sampling import Sample

SHORT, LONG = 50, 500
RUNS = int(os.environ.get("HOLDFAST_TEST_MODEL_RUNS", "0"))
STEPS = int(os.environ.get("HOLDFAST_TEST_MODEL_STEPS", "60"))
SEED = int(os.environ.get("HOLDFAST_TEST_MODEL_SEED", "0"))

# Hypothesis makes its first ten runs from scratch, and most later ones by changing a step or two of an earlier one.
# So each seed serves for ten runs only; one that fails does so again by itself, within a second.
RUNS_PER_SEED = 10


@pytest.fixture
def machine(store_url: str) -> Iterator[type[EngineBesideModel]]:
    with asyncio.Runner() as runner:
        database = runner.run(ModelDatabase.open(store_url))
        yield type(
            "EngineBesideModel", (EngineBesideModel,), {"database": database, "loop": runner.get_loop(), "taken": set()}
        )
        runner.run(database.close())


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.timeout(3600)
def test_the_engine_behaves_like_the_reference_model(machine: type[EngineBesideModel], sample: Sample) -> None:
    """S3 to S7, S9 and S12 for every job after every step; what is refused changes nothing (C-14, C-15, C-18, C-28)."""
    runs, first = RUNS or (LONG if sample.soak else SHORT), SEED or sample.number
    for number in range(first, first + max(1, runs // RUNS_PER_SEED)):
        print(f"to repeat this: HOLDFAST_TEST_MODEL_SEED={number} HOLDFAST_TEST_MODEL_RUNS={RUNS_PER_SEED}")
        run_state_machine_as_test(
            seed(number)(machine),
            settings=settings(
                max_examples=RUNS_PER_SEED,
                stateful_step_count=STEPS,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
    print(f"{machine.comparisons} comparisons in {runs} runs of {STEPS} steps")
    if runs * STEPS >= LONG * 60:
        assert machine.taken == {(each.name, move) for each in Lifecycles() for move in each.moves}, (
            "a move was never taken"
        )
