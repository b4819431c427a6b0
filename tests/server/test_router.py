"""The router finds paths by their segments only."""

import pytest

from holdfast.server.http.router import Router

PATHS = Router(
    {path: path for path in ("/", "/jobs", "/jobs/batch", "/jobs/{job}", "/jobs/{job}/events", "/a/{b}/{c}")}
)


@pytest.mark.parametrize(
    ("asked", "found", "said"),
    [
        ("/", "/", {}),
        ("/jobs", "/jobs", {}),
        ("/jobs/batch", "/jobs/batch", {}),
        ("/jobs/7", "/jobs/{job}", {"job": "7"}),
        ("/jobs/{job}", "/jobs/{job}", {"job": "{job}"}),
        ("/jobs/é ..", "/jobs/{job}", {"job": "é .."}),
        ("/jobs/7/events", "/jobs/{job}/events", {"job": "7"}),
        ("/a/1/2", "/a/{b}/{c}", {"b": "1", "c": "2"}),
    ],
)
def test_a_path_matches_its_route(asked: str, found: str, said: dict[str, str]) -> None:
    assert PATHS.find(asked) == (found, said)


@pytest.mark.parametrize(
    "asked",
    ["", "jobs", "//", "/jobs/", "//jobs", "/jobs//events", "/jobs/7/", "/jobs/7/else", "/Jobs", "/a/1", "/a//2"],
)
def test_an_unknown_path_matches_no_route(asked: str) -> None:
    assert PATHS.find(asked) is None


@pytest.mark.parametrize(
    ("asked", "found", "said"),
    [
        (b"/jobs/a%2Fb", "/jobs/{job}", {"job": "a/b"}),
        (b"/jobs/a%2fb%20c/events", "/jobs/{job}/events", {"job": "a/b c"}),
        (b"/jobs/%C3%A9", "/jobs/{job}", {"job": "é"}),
        (b"/jobs/a%252Fb", "/jobs/{job}", {"job": "a%2Fb"}),
    ],
)
def test_an_encoded_slash_is_part_of_a_parameter(asked: bytes, found: str, said: dict[str, str]) -> None:
    assert PATHS.find_encoded(asked) == (found, said)


@pytest.mark.parametrize("asked", [b"%2Fjobs", b"/jobs%2F7", b"/jobs/%2F/else", b"/jobs/7%2Fevents/", b"\xff"])
def test_an_encoded_slash_does_not_separate_segments(asked: bytes) -> None:
    assert PATHS.find_encoded(asked) is None


def test_two_parameter_names_at_one_position_are_an_error() -> None:
    with pytest.raises(ValueError, match="two parameter names"):
        Router({"/jobs/{job}": 1, "/jobs/{id}/events": 2})
