"""`make run` tells its story to the end, whatever it is told to."""

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
DEMO = [sys.executable, "-W", "error", "-m", "holdfast.demo"]


def test_the_demonstration_shows_every_step_and_ends_well() -> None:
    done = subprocess.run(DEMO, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    for shown in (
        "'send-invoice' is 'succeeded'",
        "'crawl-page' is 'retry_pending'",
        "NO   time",
        "'send-letter' is 'canceled'",
        "reap            running -> retrying       system  lease_expired",
        "lease_lost: job",
        "the database says: HF001",
        "claim     retry_pending -> running",
        "Read next:",
    ):
        assert shown in done.stdout
    assert done.stdout.isascii()


def test_the_demonstration_takes_no_offence_when_nobody_listens() -> None:
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        demo.stdout.close()
        assert demo.stderr.read() == b""
        assert demo.wait(timeout=60) == 0


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a disk that is always full")
def test_the_demonstration_says_in_a_sentence_what_stopped_it() -> None:
    with FULL.open("w") as full:
        done = subprocess.run(DEMO, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("the demonstration could not go on: ")
    assert done.stderr.count("\n") == 1
