"""`holdfast jobs list`: every filter, page by page."""

import pytest

from holdfast.engine import Engine
from holdfast.model import NewJob
from tests.cli.conftest import Answer, Holdfast, Meanwhile
from tests.cli.sample_jobs import dead, half_done, succeeded


def ids(answer: Answer) -> list[str]:
    return [row[0] for row in answer.rows]


def create(holdfast: Holdfast, *arguments: str) -> str:
    return holdfast("jobs", "create", *arguments).out.strip()


def test_filters_are_combined_with_and(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    mail = create(holdfast, "send-email", "--queue", "mail", "--tag", "urgent", "--subject", "video 7")
    other = create(holdfast, "report")
    broken = meanwhile(lambda engine: dead(engine, "E_TIMEOUT"))
    for arguments, found in (
        (["--type", "send-email"], [mail]),
        (["--type", "send-email", "--type", "report"], [other, mail]),
        (["--queue", "mail"], [mail]),
        (["--tag", "urgent"], [mail]),
        (["--subject", "video 7"], [mail]),
        (["--error-code", "E_TIMEOUT"], [broken]),
        (["--state", "queued"], [other, mail]),
        (["--status", "FAILED"], [broken]),
        (["--state", "dead,queued"], [broken, other, mail]),
        (["--status", "pending", "--queue", "default"], [other]),
        (["--since", "1h"], [broken, other, mail]),
        (["--until", "1h"], []),
        (["--since", "2100-01-01"], []),
        (["--until", "2100-01-01T00:00:00Z"], [broken, other, mail]),
    ):
        assert ids(holdfast("jobs", "list", *arguments)) == found, arguments


def test_the_children_of_a_job_are_found(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    """R002-48."""
    parent = create(holdfast, "crawl")
    child = meanwhile(lambda engine: engine.create(NewJob(type="ingest", parent_id=parent))).id
    assert ids(holdfast("jobs", "list", "--parent", parent)) == [child]
    assert holdfast("jobs", "list", "--parent", "nothing").code == 2


def test_a_page_prints_the_cursor_of_the_next_one(holdfast: Holdfast) -> None:
    created = [create(holdfast, "a") for _ in range(3)]
    first = holdfast("jobs", "list", "--limit", "2")
    assert ids(first) == created[:0:-1]
    assert first.err == f"more results: add --cursor {created[1]}\n"
    second = holdfast("jobs", "list", "--limit", "2", "--cursor", created[1])
    assert (ids(second), second.err) == ([created[0]], "")
    assert holdfast("jobs", "list", "--limit", "2", "--json").json["nextCursor"] == created[1]


def test_output_to_a_pipe_has_tabs_and_no_titles(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    lease = meanwhile(half_done)
    [[job_id, job_type, queue, state, attempt, percent, created, reason]] = holdfast("jobs", "list").rows
    assert (job_id, job_type, queue, state, attempt) == (lease.id, "render", "default", "running", "1/5")
    assert (percent, reason) == ("50 %", "")
    assert created.startswith("20")


def test_states_are_shown_with_the_names_of_their_lifecycle(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def story(engine: Engine) -> None:
        await dead(engine, lifecycle="generation")
        await succeeded(engine, lifecycle="transcode")

    meanwhile(story)
    assert [row[3] for row in holdfast("jobs", "list").rows] == ["ready", "dead_letter"]
    views = holdfast("jobs", "list", "--json").json["jobs"]
    assert [(view["state"], view["storedState"], view["status"]) for view in views] == [
        ("ready", "succeeded", "COMPLETED"),
        ("dead_letter", "dead", "FAILED"),
    ]


def test_no_token_is_ever_shown(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    lease = meanwhile(half_done)
    for arguments in (
        ["list", "--json"],
        ["show", lease.id, "--json"],
        ["show", lease.id],
        ["events", lease.id, "--json"],
    ):
        assert lease.token not in holdfast("jobs", *arguments).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--state", "asleep"], "unknown state 'asleep'; known: created, queued, running"),
        (["--since", "yesterday"], "'yesterday' is neither a duration (30m, 1h) nor a time"),
        (["--since", "9999999999999d"], "is too long ago"),
        (["--since", "1000000d"], "created_after must lie between 1970-01-01 and 2200-01-01"),
        (["--until", "1066-10-14"], "created_before must lie between 1970-01-01 and 2200-01-01"),
        (["--limit", "0"], "a call handles 1 to 500 jobs, got the limit 0"),
        (["--limit", "many"], "invalid int value: 'many'"),
        (["--cursor", "abc"], "invalid cursor; use the cursor of the previous page"),
        (["--type", ""], "must be 1 to 200 printable characters"),
        (["--stat", "dead"], "unknown option --stat; did you mean --state?"),
    ],
)
def test_invalid_filters_are_usage_errors_with_a_message(holdfast: Holdfast, arguments: list[str], said: str) -> None:
    answer = holdfast("jobs", "list", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
