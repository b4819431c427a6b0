"""Whatever is logged becomes one line, JSON or text, that tells no secret and cannot be forged (SEC-39, SEC-40)."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.lifecycle import Lifecycles, State
from holdfast.model.reports import Settled
from holdfast.observe.log_formats import Json, Terminal, Text, formatted
from holdfast.observe.logs import ATTEMPTS
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.outcomes import Abandoned, Completed, Failed, Released
from tests.observe.captured import hearing, json_lines

FORGED = 'a\nb\r\n{"level":"critical"}\x1b[2J\x00\x7f\x85\x9b1m\u2028\u202e<script>'
STEERING = set("\r\x1b\x00\x7f\x85\x9b\u2028\u202e")


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
ODD: list[Any] = [
    *(FORGED, "\ud800 alone", b"\xff\x00", float("nan"), float("inf"), 2**70, -(10**5000), ENDLESS, Mute(), Mute),
    *({1: {2: {3: {4: {5: {6: {7: 8}}}}}}}, {Mute(): Mute()}, {"a", "b"}, object(), None, True, {"\ud800": "\n"}),
]


def record(message: Any = "m", *args: Any, **fields: Any) -> logging.LogRecord:
    made = logging.getLogger("l").makeRecord("l", logging.INFO, "f", 1, message, args, None)
    made.__dict__.update(fields)
    return made


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_anything_becomes_one_line_of_json(odd: Any) -> None:
    for line in (
        formatted(record(odd), Json()),
        formatted(record("%s and %s", odd, 1), Json()),
        formatted(record(x=odd), Json()),
    ):
        [said] = json_lines(line)
        assert said["logger"] == "l"
        assert not STEERING & set(line)


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_anything_becomes_one_line_of_text(odd: Any) -> None:
    for line in (
        formatted(record(odd), Text()),
        formatted(record("%s and %s", odd, 1), Text()),
        formatted(record(x=odd), Text()),
    ):
        assert line.count("\n") == len(line.splitlines()) == 1
        assert not STEERING & set(line)


@pytest.mark.parametrize("args", [(), (1, 2, 3), ({"a": 1},), (Mute(),)])
def test_a_message_with_wrong_arguments_is_logged_unformatted(args: tuple[Any, ...]) -> None:
    [said] = json_lines(formatted(record("%d %s", *args), Json()))
    assert said["message"].startswith("%d %s")


def test_a_line_has_time_level_logger_and_message() -> None:
    made = record("hello %s", "you", size=5)
    made.created = 1_700_000_000.25
    [said] = json_lines(formatted(made, Json()))
    assert said.pop("pid") > 1
    assert said == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "info",
        "logger": "l",
        "message": "hello you",
        "size": 5,
    }
    assert formatted(made, Text()) == "2023-11-14T22:13:20.250000Z INFO    l: hello you size=5\n"


def test_a_field_cannot_replace_a_standard_field() -> None:
    [said] = json_lines(formatted(record(time="1999", level="none", pid=0, exception="x"), Json()))
    assert (said["level"], said["level_"], said["time_"], said["pid_"], said["exception_"]) == (
        *("info", "none", "1999", 0, "x"),
    )


def raised(message: str) -> logging.LogRecord:
    made = record("failed")
    try:
        raise ValueError(message)
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_a_traceback_is_a_field_without_secrets() -> None:
    [said] = json_lines(formatted(raised("password=canary-1 postgresql://u:canary-2@h"), Json()))
    assert said["exception"].startswith("Traceback (most recent call last):\n")
    assert "ValueError: password=*** postgresql://u:***@h" in said["exception"]
    assert "canary" not in json.dumps(said)


def test_a_traceback_in_text_is_indented_below_its_line() -> None:
    first, *below = formatted(raised("x\n2026-11-15T00:00:00Z INFO    holdfast: forged\x1b[2J"), Text()).splitlines()
    assert first.endswith("l: failed")
    assert all(line.startswith("    ") for line in below)
    assert not STEERING & set("".join(below))
    assert any("forged" in line for line in below)


def test_a_very_long_text_is_truncated() -> None:
    [said] = json_lines(formatted(record("x" * 10**6), Json()))
    [trouble] = json_lines(formatted(raised("y" * 10**6), Json()))
    assert len(said["message"]) < 20_000
    assert len(trouble["exception"]) < 20_000


# -- attempts ------------------------------------------------------------------------------------------------------


JOB = "01a1e156-bb32-712f-a1f2-749fcdcd76c6"


class Lease:
    id, type, queue, tenant, lifecycle = JOB, "t", "q", "default", "images"
    attempt, max_attempts = 2, 5


class Run:
    lease, span = Lease(), None

    def __init__(self, seconds: float | None = 1.5) -> None:
        self.seconds = seconds


def attempt(folder: Path, outcome: Any, answer: Any, level: int = logging.INFO, **run: Any) -> list[dict[str, Any]]:
    with hearing(folder, level=level) as heard:
        attempts = AttemptLog(heard.log, Lifecycles())
        group: Any = [(Run(**run), outcome)]
        for _ in range(2):  # the second one is made of what the first one learned
            if isinstance(outcome, Abandoned):
                attempts.abandoned(group)
            else:
                attempts.ended(group, [answer])
        first, second = heard.lines[::2] or [None], heard.lines[1::2] or [None]
        assert {**(first[0] or {}), "time": 0} == {**(second[0] or {}), "time": 0}
        return heard.lines[:1]


def test_an_attempt_is_logged_with_its_duration_and_outcome(tmp_path: Path) -> None:
    """R000-49, R000-51, R000-52: duration, retries and state; the state in the lifecycle's own word."""
    [said] = attempt(tmp_path, Completed({"a": "canary"}), Settled("j", State.SUCCEEDED))
    del said["time"], said["pid"]
    assert said == {
        "level": "info",
        "logger": ATTEMPTS,
        "message": "attempt 2 of 5 succeeded, now completed",
        "job_id": JOB,
        "seconds": 1.5,
        "job_type": "t",
        "queue": "q",
        "attempt": 2,
        "of": 5,
        "retries": 1,
        "outcome": "succeeded",
        "state": "completed",
    }


def test_a_failure_is_logged_with_its_reason(tmp_path: Path) -> None:
    """R000-50."""
    trace = "Traceback (most recent call last):\n  password=canary\nE_X: no"
    outcome = Failed("E_X", f"password=canary {'y' * 500}\n", {"traceback": trace})
    [said] = attempt(tmp_path, outcome, Settled("j", State.RETRYING))
    assert (said["level"], said["outcome"], said["state"], said["error_code"]) == (
        *("warning", "failed", "failed_retryable", "E_X"),
    )
    assert said["error"].startswith("password=*** yyy")
    assert len(said["error"]) < 300
    assert said["exception"] == "Traceback (most recent call last):\n  password=***\nE_X: no"
    assert "canary" not in json.dumps(said)


def test_on_a_terminal_an_attempt_is_one_line_with_its_traceback_below(tmp_path: Path) -> None:
    error = Failed("ConnectionError", "no route to host\n" + "y" * 500, {"traceback": "Traceback:\n  in send"})
    with hearing(tmp_path, form=Terminal(100)) as heard:
        attempts = AttemptLog(heard.log, Lifecycles())
        attempts.ended([(Run(), Completed())], [Settled("j", State.SUCCEEDED)])  # type: ignore[list-item]
        attempts.ended([(Run(), error)], [Settled("j", State.RETRYING)])  # type: ignore[list-item]
        succeeded, failed, *trace = heard.text.splitlines()
    assert succeeded[9:] == f"t            {JOB[:18]}    1.500 s succeeded 2/5, now completed"
    assert failed[9:].startswith(f"t            {JOB[:18]}    1.500 s failed 2/5, now failed_retryable: Connec")
    assert len(failed) == 100
    assert trace == ["    Traceback:", "      in send"]


def test_on_a_narrow_terminal_the_error_has_priority_over_other_fields(tmp_path: Path) -> None:
    with hearing(tmp_path, form=Terminal(80)) as heard:
        group: Any = [(Run(), Failed("ConnectionError", "no route to host"))]
        AttemptLog(heard.log, Lifecycles()).ended(group, [Settled("j", State.RETRYING)])
        line, below = heard.text.splitlines()
    assert line[9:] == f"t            {JOB[:18]}    1.500 s failed 2/5: ConnectionError…"
    assert len(line) <= 80
    assert below == "    now failed_retryable: ConnectionError: no route to host", (
        "without a traceback it stands nowhere else"
    )


def test_colors_are_used_on_a_terminal_only_and_handlers_cannot_set_them(tmp_path: Path) -> None:
    with hearing(tmp_path, form=Terminal(200, colour=True)) as heard:
        group: Any = [(Run(), Failed("E", "\x1b[2J"))]
        AttemptLog(heard.log, Lifecycles()).ended(group, [Settled("j", State.DEAD)])
        assert "\x1b[31mfailed 2/5\x1b[0m: E: " in heard.text
        assert "\x1b[2J" not in heard.text


def test_a_failure_that_is_not_final_is_logged_as_retryable(tmp_path: Path) -> None:
    [said] = attempt(tmp_path, Failed("E_X"), Settled("j", State.QUEUED))
    assert said["state"] == "failed_retryable"


def test_a_lost_lease_is_logged_once_as_a_warning(tmp_path: Path) -> None:
    [said] = attempt(tmp_path, Abandoned(), None)
    assert (said["outcome"], said["state"], said["level"]) == ("lost", None, "warning")


def test_a_job_that_never_started_is_not_logged_as_an_attempt(tmp_path: Path) -> None:
    assert attempt(tmp_path, Released(), Settled("j", State.QUEUED), seconds=None) == []


def test_a_level_above_info_logs_only_failures(tmp_path: Path) -> None:
    quiet = {"level": logging.WARNING}
    assert attempt(tmp_path, Completed(), Settled("j", State.SUCCEEDED), **quiet) == []
    assert len(attempt(tmp_path, Failed("E_X"), Settled("j", State.DEAD), **quiet)) == 1


# -- a program that is not ours ------------------------------------------------------------------------------------

LIBRARY = """
import asyncio, logging
before = logging.getLogger().level, list(logging.getLogger().handlers)
from holdfast import App
from holdfast.assembly.worker import WorkerOptions, work
from tests.observe.logged_app import app
import sys, threading
hooks = sys.excepthook, threading.excepthook

async def main():
    stop = asyncio.Event()
    async with app:
        from tests.observe.logged_app import fine, doomed
        good, bad = await fine.enqueue(), await doomed.enqueue()
        working = asyncio.create_task(work(app, WorkerOptions(), stop=stop, on_ready=lambda worker: None))
        await good.result(timeout=60)
        try:
            await bad.result(timeout=60)
        except Exception as error:
            print(type(error).__name__)
        stop.set()
        await working

asyncio.run(main())
assert (logging.getLogger().level, logging.getLogger().handlers) == before
assert logging.getLogger("holdfast").level == logging.NOTSET
assert hooks == (sys.__excepthook__, threading.__excepthook__)
print("untouched")
"""


def test_logging_of_a_program_that_uses_holdfast_as_a_library_is_unchanged(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == ["JobFailed", "untouched"], done.stderr
    said = [line for line in done.stderr.splitlines() if "(doomed)" in line]
    assert len(said) == 2, "what failed is warned of, by Python's own last resort"
    assert '{"time"' not in done.stderr


QUIET_CHILD = """
import logging
from holdfast.observe.logs import ATTEMPTS, TRANSITIONS, Logs, configure, inherited, quiet_jobs

configure(Logs(form="text"))
quiet_jobs(failures=False)
found = inherited()
for name in (TRANSITIONS, ATTEMPTS):
    logging.getLogger(name).setLevel(logging.INFO)
configure(found)
print(*(logging.getLevelName(logging.getLogger(name).level) for name in (TRANSITIONS, ATTEMPTS)))
"""


def test_the_processes_that_a_command_starts_are_as_quiet_as_the_command() -> None:
    """`holdfast dev --quiet`: a job that completes in a child process is not logged there either."""
    said = subprocess.run([sys.executable, "-c", QUIET_CHILD], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["ERROR", "WARNING"], said.stderr
