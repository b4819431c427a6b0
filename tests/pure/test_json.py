"""JSON that both databases keep as it is. What cannot be kept is refused: one error type, one code, with the place."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.model.json import DEPTH_MAX, KEYS_MAX, decode, decode_or_none, encode

LIMIT = 256 * 1024


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def nested_objects(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


NOT_JSON: list[tuple[Any, str]] = [
    ({"a": "nul\x00"}, "payload.a contains the character NUL"),
    ({"nul\x00": 1}, "payload contains the character NUL"),
    ({"a": "é\x00"}, "payload.a contains the character NUL"),
    ({"a": ["\ud800"]}, "payload.a[0] contains a lone surrogate"),
    ({"\udfff": 1}, "payload contains a lone surrogate"),
    ({"a": math.nan}, "payload.a is nan, which JSON does not have"),
    ({"a": math.inf}, "payload.a is inf, which JSON does not have"),
    ({"a": [{"b": -math.inf}]}, "payload.a[0].b is -inf"),
    ({"a": 2**64}, "payload.a is an integer beyond 64 bits; send it as a string"),
    ({"a": -(2**63) - 1}, "payload.a is an integer beyond 64 bits"),
    ({"a": 10**1_000_000}, "payload.a is an integer beyond 64 bits"),
    ({1: "a"}, "payload has a key that is an int, not a string"),
    ({None: "a"}, "payload has a key that is a NoneType, not a string"),
    ({("a", "b"): 1}, "payload has a key that is a tuple, not a string"),
    ({10**5000: 1}, "payload has a key that is an int, not a string"),
    ({"a": {1, 2}}, "payload.a is a set, which is not JSON"),
    ({"a": b"bytes"}, "payload.a is a bytes, which is not JSON"),
    ({"a": bytearray()}, "payload.a is a bytearray, which is not JSON"),
    ({"a": object()}, "payload.a is an object, which is not JSON"),
    ({"a": Decimal("1.0")}, "payload.a is a Decimal, which is not JSON"),
    ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, "payload.a is a datetime, which is not JSON"),
    ({"a": 1j}, "payload.a is a complex, which is not JSON"),
    ({"a": nested(100_000)}, f"is nested deeper than {DEPTH_MAX} levels"),
    ({"a": nested_objects(100_000)}, f"is nested deeper than {DEPTH_MAX} levels"),
    ({"a": [0] * KEYS_MAX}, f"it holds more than {KEYS_MAX} values"),
]


@pytest.mark.parametrize(("value", "says"), NOT_JSON, ids=range(len(NOT_JSON)))
def test_a_value_that_is_not_json_is_refused_with_its_path(value: Any, says: str) -> None:
    """F33: the same clear error before any database sees it."""
    with pytest.raises(Invalid) as caught:
        encode(value, "payload", max_bytes=LIMIT)
    assert caught.value.code == "payload_not_json"
    assert caught.value.message.startswith("payload cannot be stored: ")
    assert says in caught.value.message
    assert len(caught.value.message) < 1000


def test_an_error_stays_short_however_long_the_path() -> None:
    with pytest.raises(Invalid) as caught:
        encode({"k" * 100_000: math.nan}, "payload", max_bytes=LIMIT)
    assert len(caught.value.message) < 1000


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(Invalid, match="nested deeper") as caught:
        encode(endless, "result", max_bytes=LIMIT)
    assert caught.value.code == "result_not_json"


@pytest.mark.parametrize("value", [2**64 - 1, 2**63, 2**63 - 1, -(2**63), 0, True, None, 1.5, -0.0, 1e308, 5e-324])
def test_integers_up_to_64_bits_round_trip(value: Any) -> None:
    again = decode(encode(value, "payload", max_bytes=LIMIT))
    assert (again, type(again)) == (value, type(value))


def test_the_deepest_nesting_that_is_allowed_is_kept() -> None:
    value = nested(DEPTH_MAX)
    assert decode(encode(value, "payload", max_bytes=LIMIT)) == value
    with pytest.raises(Invalid, match="nested deeper"):
        encode([value], "payload", max_bytes=LIMIT)


def test_depth_is_the_same_for_objects_and_lists() -> None:
    value = nested_objects(DEPTH_MAX)
    assert decode(encode(value, "payload", max_bytes=LIMIT)) == value
    with pytest.raises(Invalid, match="nested deeper"):
        encode({"a": value}, "payload", max_bytes=LIMIT)


@pytest.mark.parametrize("letter", ["a", "é", "\N{GRINNING FACE}"])
def test_the_limit_is_in_bytes_and_exact(letter: str) -> None:
    width = len(letter.encode())
    whole = {"a": letter * ((LIMIT - 8) // width)}
    exact = {"a": whole["a"] + "x" * ((LIMIT - 8) % width)}
    assert len(encode(exact, "payload", max_bytes=LIMIT).encode()) == LIMIT
    with pytest.raises(Invalid) as caught:
        encode({"a": exact["a"] + "x"}, "payload", max_bytes=LIMIT)
    assert caught.value.code == "payload_too_large"
    assert caught.value.fields == {"bytes": LIMIT + 1, "limit": LIMIT}
    assert "store it elsewhere and send a reference" in caught.value.message


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_every_json_value_round_trips(value: Any) -> None:
    text = encode(value, "payload", max_bytes=LIMIT)
    assert decode(text) == value
    assert "\x00" not in text


ODD = st.recursive(
    st.floats() | st.text() | st.binary() | st.integers() | st.sampled_from([object(), {1}, 1j, ..., "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@given(ODD)
def test_every_value_that_is_not_json_is_refused_without_a_crash(value: Any) -> None:
    refused = None
    try:
        assert decode(encode(value, "payload", max_bytes=LIMIT)) == value
    except Invalid as error:
        refused = error.code
    assert refused in (None, "payload_not_json")


def test_none_is_stored_as_none() -> None:
    assert decode_or_none(None) is None
    assert decode_or_none("null") is None
    assert decode_or_none("[1]") == [1]
