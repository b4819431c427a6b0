"""Keys that are derived from a request."""

from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.extend import derived_key
from holdfast.model import NewJob
from holdfast.model.derived_key import with_derived_key

KEY = derived_key("ada", "a red fox", {"size": 512, "style": "ink"})


@pytest.mark.parametrize(
    "request_",
    [
        ("a red fox", {"style": "ink", "size": 512}),
        (" a  red\nfox ", {"size": 512, "style": "ink "}),
    ],
    ids=["order of names", "spaces"],
)
def test_equivalent_requests_have_the_same_derived_key(request_: tuple[Any, ...]) -> None:
    """R004-27: hash of user, prompt and parameters."""
    assert derived_key("ada", *request_) == KEY
    assert derived_key("ada", "cafe\u0301") == derived_key("ada", "caf\u00e9")


@pytest.mark.parametrize(
    ("subject", "request_"),
    [
        ("bob", ("a red fox", {"size": 512, "style": "ink"})),
        ("ada", ("a red Fox", {"size": 512, "style": "ink"})),
        ("ada", ("a red fox", {"size": 513, "style": "ink"})),
        ("ada", ("a red fox",)),
        ("ada", ("a", "red fox", {"size": 512, "style": "ink"})),
    ],
)
def test_every_part_of_a_request_counts(subject: str, request_: tuple[Any, ...]) -> None:
    """R004-27."""
    assert derived_key(subject, *request_) != KEY


def test_a_derived_key_depends_on_the_job_type_and_not_on_options() -> None:
    """A double click is one job, wherever the first one waits."""
    job = with_derived_key(NewJob(type="image", priority=5), "ada", "fox")
    again = with_derived_key(NewJob(type="image", tags=["late"]), "ada", " fox")
    other = with_derived_key(NewJob(type="video"), "ada", "fox")
    job.check()
    assert (job.idempotency_key, job.fingerprint()) == (again.idempotency_key, again.fingerprint())
    assert job.idempotency_key != other.idempotency_key


def test_an_explicit_key_wins() -> None:
    """R004-27, C-18."""
    job = NewJob(type="image", idempotency_key="mine")
    assert with_derived_key(job, "ada", "fox") is job


@pytest.mark.parametrize("bad", [("", "fox"), ("ada",), (7, "fox"), ("ada", {1}), ("ada", "x" * 300_000)])
def test_a_key_cannot_be_derived_from_an_invalid_subject(bad: tuple[Any, ...]) -> None:
    with pytest.raises(Invalid):
        derived_key(*bad)
