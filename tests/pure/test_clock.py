"""Times on their way into a column and back."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.clock import FIRST, LAST, from_micros, to_micros


@pytest.mark.parametrize("at", [FIRST, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), LAST])
def test_a_time_round_trips_through_microseconds(at: datetime) -> None:
    assert from_micros(to_micros(at)) == at
    assert from_micros(to_micros(at)).tzinfo is UTC


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    assert to_micros(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0


@pytest.mark.parametrize(
    ("beyond", "nearest"), [(2**63 - 1, LAST), (-(2**63), FIRST), (10**30, LAST), (-(10**30), FIRST)]
)
def test_a_time_outside_the_range_of_python_becomes_the_nearest(beyond: int, nearest: datetime) -> None:
    """A manually written row must not break its readers."""
    assert from_micros(beyond) == nearest
