"""Random histories of jobs with limits, on each store: a few that the commit chooses, and more in `make soak`."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.database import ModelDatabase
from tests.model.limits import EngineUnderLimits
from tests.sampling import Sample

SHORT, LONG = 30, 600
RUNS = int(os.environ.get("HOLDFAST_TEST_MODEL_RUNS", "0"))
STEPS = int(os.environ.get("HOLDFAST_TEST_MODEL_STEPS", "40"))
SEED = int(os.environ.get("HOLDFAST_TEST_MODEL_SEED", "0"))
RUNS_PER_SEED = 6


@pytest.fixture
def machine(store_url: str) -> Iterator[type[EngineUnderLimits]]:
    with asyncio.Runner() as runner:
        database = runner.run(ModelDatabase.open(store_url))
        yield type("EngineUnderLimits", (EngineUnderLimits,), {"database": database, "loop": runner.get_loop()})
        runner.run(database.close())


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.timeout(3600)
def test_limits_hold_in_random_histories_and_every_job_ends(machine: type[EngineUnderLimits], sample: Sample) -> None:
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
