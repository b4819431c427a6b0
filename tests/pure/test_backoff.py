"""One way to wait longer after each failure."""

import pytest

from holdfast.backoff import Backoff, delay
from holdfast.ids import SeededIds


@pytest.mark.parametrize(("failures", "whole"), [(1, 0.5), (2, 1), (3, 2), (6, 10), (10_000, 10)])
def test_a_delay_doubles_up_to_its_limit_and_jitter_decides_a_share_of_it(failures: int, whole: float) -> None:
    assert delay(failures, 0.5, 10, 0, jitter=0) == whole
    assert [delay(failures, 0.5, 10, chance, jitter=1) for chance in (0, 0.5, 1)] == [0, whole / 2, whole]
    assert [delay(failures, 0.5, 10, chance) for chance in (0, 1)] == [whole / 2, whole]


def test_after_a_success_the_next_failure_is_the_first_again() -> None:
    backoff = Backoff(SeededIds(7), 1, 8)
    delays = [backoff.next() for _ in range(5)]
    assert all(most / 2 <= found <= most for found, most in zip(delays, (1, 2, 4, 8, 8), strict=True))
    backoff.reset()
    assert backoff.failures == 0
    assert 0.5 <= backoff.next() <= 1
