"""`holdfast queues`: what waits where, and holding it back."""

from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.sample_jobs import dead


def test_each_queue_is_counted_by_state(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    for _ in range(2):
        holdfast("jobs", "create", "send-email", "--queue", "mail")
    holdfast("jobs", "create", "send-email", "--queue", "mail", "--delay", "1h")
    meanwhile(lambda engine: dead(engine, queue="video"))
    mail, video = holdfast("queues", "list", "--json").json["queues"]
    assert (mail["queue"], mail["jobs"]["queued"], mail["jobs"]["dead"]) == ("mail", 3, 0)
    assert (video["queue"], video["jobs"]["queued"], video["jobs"]["dead"]) == ("video", 0, 1)
    assert mail["oldestWaitingAt"] is not None
    assert video["oldestWaitingAt"] is None
    [row, _] = holdfast("queues", "list").rows
    assert (row[0], row[2], row[-1]) == ("mail", "3", "open")


def test_a_delayed_job_is_not_counted_as_waiting(holdfast: Holdfast) -> None:
    holdfast("jobs", "create", "a", "--delay", "1h")
    [queue] = holdfast("queues", "list", "--json").json["queues"]
    assert (queue["jobs"]["queued"], queue["oldestWaitingAt"]) == (1, None)


def test_a_paused_queue_is_listed_until_it_is_resumed(holdfast: Holdfast) -> None:
    paused = holdfast("queues", "pause", "mail", "--by", "alice")
    assert (paused.code, paused.out) == (0, "queue 'mail' is paused\n")
    assert paused.err == "note: no job is in queue 'mail'; there are no jobs\n"
    [queue] = holdfast("queues", "list", "--json").json["queues"]
    assert (queue["queue"], queue["pausedBy"], queue["pausedAt"] is None) == ("mail", "alice", False)
    assert holdfast("queues", "list").out.rstrip().endswith(" by alice")
    assert holdfast("queues", "resume", "mail", "--json").json == {"queue": "mail", "paused": False}
    assert holdfast("queues", "list").out == ""


def test_pausing_a_queue_without_jobs_names_those_that_have_jobs(holdfast: Holdfast) -> None:
    holdfast("jobs", "create", "send_email", "--queue", "mail")
    paused = holdfast("queues", "pause", "mial", "--json")
    assert (paused.code, paused.json) == (0, {"queue": "mial", "paused": True})
    assert paused.err == "note: no job is in queue 'mial'; queues with jobs: mail\n"
    assert holdfast("queues", "pause", "mail").err == ""


def test_resuming_a_queue_that_was_never_paused_succeeds(holdfast: Holdfast) -> None:
    answer = holdfast("queues", "resume", "mail")
    assert (answer.code, answer.out) == (0, "queue 'mail' is open; it was not paused\n")


def test_a_queue_without_a_name_is_a_usage_error(holdfast: Holdfast) -> None:
    answer = holdfast("queues", "pause", " ")
    assert answer.code == 2
    assert answer.err.startswith("holdfast: queue must be 1 to 200 printable characters")
