"""Ids: UUIDv7 for jobs, in order of creation; unguessable tokens; the same ones again from a seed."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import to_micros
from holdfast.ids import Ids, SeededIds, are_uuids, is_uuid, uuid7_floor

NOW = datetime(2026, 7, 1, 12, 30, 45, 123_456, tzinfo=UTC)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@given(TIMES)
def test_a_job_id_is_a_uuid_of_version_7_that_carries_its_time(at: datetime) -> None:
    """R001-26, RFC 9562: 48 bits of milliseconds, then version and variant."""
    made = uuid.UUID(Ids().job_ids(at, 1)[0])
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == to_micros(at) // 1000


def test_ids_increase_within_a_process_even_if_the_clock_stops_or_goes_back() -> None:
    ids = Ids()
    made = [ids.job_ids(NOW, 1)[0] for _ in range(5000)]
    made += [ids.job_ids(NOW - timedelta(hours=1), 1)[0] for _ in range(1000)]
    assert made == sorted(set(made))


def test_a_later_microsecond_has_a_higher_id() -> None:
    made = [Ids().job_ids(NOW + timedelta(microseconds=n), 1)[0] for n in range(1000)]
    assert made == sorted(made)


@given(TIMES)
def test_no_id_of_a_moment_lies_below_the_floor_of_that_moment(at: datetime) -> None:
    assert uuid7_floor(at) <= Ids().job_ids(at, 1)[0]
    assert is_uuid(uuid7_floor(at))
    assert (
        uuid7_floor(at) > Ids().job_ids(at - timedelta(milliseconds=1), 1)[0]
        if at > datetime(1971, 1, 1, tzinfo=UTC)
        else True
    )


def test_a_token_is_random_and_looks_like_a_uuid() -> None:
    ids = Ids()
    tokens = {ids.token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert {(uuid.UUID(token).version, uuid.UUID(token).variant) for token in tokens} == {(4, uuid.RFC_4122)}
    assert all(is_uuid(token) for token in tokens)


def test_seeded_ids_are_reproducible() -> None:
    def draw(seed: int) -> list[Any]:
        ids = SeededIds(seed)
        return [ids.job_ids(NOW, 1)[0], ids.token(), ids.jitter()]

    assert draw(1) == draw(1) != draw(2)
    assert all(0 <= SeededIds(n).jitter() < 1 and 0 <= Ids().jitter() < 1 for n in range(100))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "me",
        None,
        7,
        uuid.UUID(int=1),
        "00000000-0000-0000-0000-00000000000",
        "00000000-0000-0000-0000-0000000000000",
        "00000000000000000000000000000000",
        "{00000000-0000-0000-0000-000000000000}",
        "00000000-0000-0000-0000-00000000000g",
        "00000000-0000-0000-0000-000000000000\n",
        "00000000-0000-0000-0000-00000000000\N{ARABIC-INDIC DIGIT ZERO}",
        "ABCDEF00-0000-0000-0000-000000000000",
    ],
)
def test_only_the_one_canonical_spelling_is_an_id(text: Any) -> None:
    """SQLite compares text and PostgreSQL UUIDs: with one spelling both agree."""
    assert not is_uuid(text)
    assert is_uuid("abcdef00-0000-0000-0000-000000000000")


@given(st.lists(st.text("0123456789abcdefA- ,", max_size=40) | st.uuids().map(str)), st.data())
def test_many_ids_are_checked_at_once_as_one_by_one(texts: list[str], data: Any) -> None:
    assert are_uuids(texts) == all(map(is_uuid, texts))
    whole = [str(data.draw(st.uuids())) for _ in range(3)]
    assert are_uuids(whole)
    place, found = data.draw(st.integers(0, 35)), data.draw(st.sampled_from("0f-A, é"))
    changed = whole[0][:place] + found + whole[0][place + 1 :]
    assert are_uuids([changed, *whole]) == is_uuid(changed)


def test_what_is_no_text_is_no_id() -> None:
    bad: Any = [str(uuid.uuid4()), None]
    assert not are_uuids(bad)
