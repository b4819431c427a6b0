"""A sample of the mutants in every run of the tests, a larger one in `make soak`; `make mutate` hunts them all."""

from pathlib import Path

import pytest

from holdfast.store.queries import q
from tests.mutation import run
from tests.mutation.mutants import VARIABLE, all_mutants
from tests.sampling import Sample

SOAK_SAMPLES = 10


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.timeout(3600)
def test_each_guard_of_a_sample_is_missed_when_it_is_gone(
    postgres_server_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sample: Sample
) -> None:
    monkeypatch.setenv(run.DATABASE, postgres_server_url)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    chosen = run.sample(list(all_mutants().values()), sample.seed, SOAK_SAMPLES if sample.soak else run.SAMPLES)
    survivors = run.hunt(chosen)
    with capsys.disabled():
        print(f"\nguard mutants: {len(chosen) - len(survivors)}/{len(chosen)} killed")
    assert [mutant.name for mutant in survivors] == []


def test_every_mutant_is_part_of_some_sample() -> None:
    mutants = list(all_mutants().values())
    seeds = [str(number) for number in range(20 * SOAK_SAMPLES)]
    found = {mutant.name for seed in seeds for mutant in run.sample(mutants, seed, SOAK_SAMPLES)}
    assert found == {mutant.name for mutant in mutants}
    assert VARIABLE.startswith("HOLDFAST_TEST_")


def test_each_area_with_tests_of_its_own_is_a_query() -> None:
    assert {*run.CLOSE} - {query.name for query in q.all()} == {"schema"}


def test_the_tests_nearest_to_the_mutants_exist() -> None:
    nearest = {Path(file) for mutant in all_mutants().values() for file in run.close_to(mutant)}
    assert [str(file) for file in sorted(nearest) if not (run.ROOT / file).is_file()] == []
