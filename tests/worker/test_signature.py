"""The arguments of a handler: plain scalars are passed on as they are, and everything else is converted and checked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.worker.signature import Signature


async def scalars(text: str, number: int, share: float = 0.5, flag: bool = False) -> None: ...


SIGNATURE = Signature(scalars, "scalars")
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text(max_size=3) | st.just([])
PAYLOADS = st.dictionaries(st.sampled_from(["text", "number", "share", "flag", "other"]), VALUES)


def converted(payload: Any) -> Any:
    """As without the short way for scalars; None where it is rejected."""
    slow = Signature(scalars, "scalars")
    slow._scalars.clear()
    try:
        return slow.arguments(payload)
    except Invalid:
        return None


@given(PAYLOADS)
def test_scalars_that_are_passed_on_are_those_that_a_conversion_would_make(payload: dict[str, Any]) -> None:
    expected = converted(payload)
    if expected is None:
        with pytest.raises(Invalid):
            SIGNATURE.arguments(payload)
    else:
        found = SIGNATURE.arguments(payload)
        assert {name: (type(value), value) for name, value in found.items()} == {
            name: (type(value), value) for name, value in expected.items()
        }


def test_the_arguments_are_not_the_payload_itself() -> None:
    payload = {"text": "a", "number": 1}
    assert SIGNATURE.arguments(payload) is not payload, "the context is added to them"


@pytest.mark.parametrize("payload", [None, [], "text", {"text": "a"}, {"text": "a", "number": True}])
def test_what_the_function_cannot_take_is_rejected(payload: Any) -> None:
    with pytest.raises(Invalid):
        SIGNATURE.arguments(payload)
