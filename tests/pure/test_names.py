"""Names end up in logs, metrics, URLs and terminals: printable, trimmed, bounded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.model.names import NAME_MAX, TAGS_MAX, capabilities_of, check_name, check_names, quoted

BAD = [
    "",
    " ",
    " a",
    "a ",
    "a\nb",
    "tab\t",
    "\x00",
    "\x1b[31m",
    "\x7f",
    "\u202e",
    "\ud800",
    "x" * 201,
    None,
    7,
    b"a",
    ["a"],
]


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_name_is_refused_with_its_field(name: Any) -> None:
    with pytest.raises(Invalid) as caught:
        check_name(name, "job type")
    assert caught.value.code == "invalid_field"
    assert caught.value.message.startswith(f"job type must be 1 to {NAME_MAX} printable characters")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    "name", ["a", "SEND_EMAIL", "mail.eu-west/1", "größe", "日本", "x" * 200, "two words", "'; DROP"]
)
def test_a_good_name_is_kept_as_it_is(name: str) -> None:
    assert check_name(name, "queue") == name


@given(st.text(max_size=250))
def test_every_accepted_name_is_printable_trimmed_and_short(name: str) -> None:
    try:
        check_name(name, "queue")
    except Invalid:
        return
    assert name.isprintable()
    assert name == name.strip() != ""
    assert len(name) <= NAME_MAX


def test_a_list_of_names_is_sorted_and_each_is_named_once() -> None:
    assert check_names(["b", "a", "b"], "tag") == ["a", "b"]
    assert check_names([], "tag") == []


@pytest.mark.parametrize("names", ["abc", 7, {"a": 1}, None, ["ok", ""], [1], ["t"] * (TAGS_MAX + 1)])
def test_a_value_that_is_no_list_of_names_is_refused(names: Any) -> None:
    with pytest.raises(Invalid) as caught:
        check_names(names, "tag")
    assert caught.value.code == "invalid_field"


def test_capabilities_become_names_that_jobs_can_require() -> None:
    """R003-27: a JSON object of what a worker has; false and null are what it has not."""
    declared = {
        "gpu": True,
        "cpu": False,
        "tpu": None,
        "codecs": ["h264", "av1"],
        "cuda": "12",
        "slots": 4,
        "extra": {"a": 1},
    }
    assert capabilities_of(declared) == [
        *("codecs", "codecs:av1", "codecs:h264", "cuda", "cuda:12", "extra", "gpu", "slots", "slots:4"),
    ]
    assert capabilities_of({}) == []


@pytest.mark.parametrize("declared", [{"": True}, {"a\nb": True}, {"codec": ["\x00"]}, {"codec": "x" * 300}])
def test_a_capability_that_is_no_name_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        capabilities_of(declared)
    assert caught.value.code == "invalid_field"


def test_a_value_that_cannot_be_formatted_is_refused_with_a_message() -> None:
    """Neither the digits of a huge number nor the depth of a list turns a refusal into another error."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert quoted(10**5000) == "an int that cannot be shown"
    assert quoted(deep) == "a list that cannot be shown"
    assert quoted("x" * 100) == "'" + "x" * 76 + "..."
    with pytest.raises(Invalid, match="tag must be"):
        check_names([deep], "tag")
