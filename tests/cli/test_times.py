"""Durations and times as people type them."""

import argparse
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.output import span_text
from holdfast.cli.times import before, moment, past, seconds


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("30m", 1800),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("0.5h", 1800),
    ],
)
def test_durations_are_parsed(text: str, meant: float) -> None:
    assert seconds(text) == meant


@pytest.mark.parametrize("text", ["", "h", "1x", "-5", "5 m", "1h 30m", "1e3", "∞"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        seconds(text)


def test_a_time_is_in_utc_unless_it_says_otherwise() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert moment("2026-01-31T12:00:00Z") == moment("2026-01-31T14:00+02:00") == moment("2026-01-31 12:00") == noon
    assert moment("2026-01-31") == noon.replace(hour=0)


def test_a_past_time_is_given_as_a_time_or_a_duration() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert before(noon, past("2h")) == noon - timedelta(hours=2)
    assert before(noon, past("2026-01-31")) == noon.replace(hour=0)
    assert before(noon, None) is None


@pytest.mark.parametrize(
    ("length", "said"), [(0, "0 s"), (-3, "0 s"), (119, "119 s"), (120, "2 m"), (7200, "2 h"), (200_000, "2 d")]
)
def test_a_duration_is_printed_in_short_form(length: float, said: str) -> None:
    assert span_text(length) == said
