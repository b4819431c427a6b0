"""The state of another process: running, stopped or gone."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.worker.processes.process_state import ProcessState, state_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux shows a process's state")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "100"]) as process:
        yield process
        process.kill()


def test_a_stopped_process_is_stopped_until_it_is_continued(sleeper: subprocess.Popen[bytes]) -> None:
    assert state_of(sleeper.pid, child_of=os.getpid()) is ProcessState.RUNNING
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert state_of(sleeper.pid, child_of=os.getpid()) is ProcessState.STOPPED
    sleeper.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED | os.WNOWAIT)
    assert state_of(sleeper.pid, child_of=os.getpid()) is ProcessState.RUNNING


def test_a_zombie_process_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{sleeper.pid}").exists()
    assert state_of(sleeper.pid) is ProcessState.GONE
    sleeper.wait()
    assert state_of(sleeper.pid) is ProcessState.GONE


def test_a_process_with_another_parent_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    assert state_of(sleeper.pid, child_of=os.getppid()) is ProcessState.GONE


def test_a_program_name_with_parentheses_is_parsed(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "100"]) as process:
        try:
            assert b"Z 1 (" in Path(f"/proc/{process.pid}/stat").read_bytes()
            assert state_of(process.pid, child_of=os.getpid()) is ProcessState.RUNNING
        finally:
            process.kill()
