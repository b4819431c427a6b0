"""A hint on its way: small, and believed only after a look at it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatch.messages import BYTES_MAX, level_of, read, written
from holdfast.model.hint import Hint

JOB = "0198c0de-0000-7000-8000-000000000001"

names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=200)
hints = st.builds(
    Hint,
    queue=names,
    type=st.none() | names,
    job=st.none() | st.uuids().map(str),
    priority=st.integers(min_value=-100, max_value=100),
)


@given(hints)
def test_an_encoded_hint_decodes_to_itself(hint: Hint) -> None:
    message = written(hint)
    assert len(message) <= BYTES_MAX
    assert read(message) in (hint, hint._replace(type=None))
    assert read(message.decode()) == read(message)


@given(st.binary(max_size=2 * BYTES_MAX) | st.text(max_size=BYTES_MAX))
def test_arbitrary_bytes_decode_to_a_hint_or_nothing(message: bytes | str) -> None:
    """SEC-23: whatever lies in the broker, nothing is raised."""
    hint = read(message)
    assert hint is None or isinstance(hint, Hint)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_arbitrary_json_decodes_to_a_hint_or_nothing(value: object) -> None:
    """SEC-23"""
    hint = read(json.dumps(value))
    assert hint is None or -100 <= hint.priority <= 100


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b"null",
        b'["mail"]',
        b'["mail",null,null]',
        b'["mail",null,null,0,0]',
        b'["mail",null,"not an id",0]',
        b'["mail",null,null,101]',
        b'["mail",null,null,1e99]',
        b'["mail",null,null,true]',
        b'["",null,null,0]',
        b'[" mail",null,null,0]',
        b'["ma\\u0000il",null,null,0]',
        b'["mail","\\u001b[31m",null,0]',
        b'["\xff\xfe",null,null,0]',
        b"[" * BYTES_MAX,
        json.dumps(["q" * 201, None, None, 0]).encode(),
        b'["mail",null,null,0]' + b" " * BYTES_MAX,
        None,
        7,
    ],
)
def test_a_malformed_message_decodes_to_nothing(message: object) -> None:
    """SEC-23: names are checked like everybody's, ids are ids, and nothing is long."""
    assert read(message) is None


def test_a_hint_omits_the_job_type_when_it_would_be_too_long() -> None:
    hint = Hint("\N{KHMER LETTER KA}" * 200, "\N{KHMER LETTER KA}" * 200, JOB, 3)
    assert read(written(hint)) == hint._replace(type=None)


def test_priorities_map_to_three_levels() -> None:
    assert [level_of(Hint("q", priority=priority)) for priority in (100, 1, 0, -1, -100)] == [
        "high",
        "high",
        "normal",
        "low",
        "low",
    ]
