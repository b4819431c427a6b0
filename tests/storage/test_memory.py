"""How large an object is has nothing to do with how much memory it takes to put or get it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.s3 import S3Server

MIB = 256
GROWS_MIB_MAX = 16


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_a_large_object_is_streamed_in_little_memory(
    kind: str, tmp_path: Path, s3_server: S3Server, s3_url: str
) -> None:
    url = s3_url if kind == "s3" else str(tmp_path / "objects")
    keys = {f"AWS_{name.upper()}": value for name, value in s3_server.credentials.items()}
    command = [sys.executable, "-m", "tests.storage.measure_memory", url, str(MIB)]
    done = subprocess.run(command, env={**os.environ, **keys}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["size"], said["same"]) == (MIB << 20, True)
    assert max(said["put"], said["get"]) <= GROWS_MIB_MAX, said


def test_a_process_that_used_storage_exits_cleanly(s3_server: S3Server, s3_url: str) -> None:
    """It was aborted by threads of the library that outlived the interpreter, in one of four runs."""
    keys = {f"AWS_{name.upper()}": value for name, value in s3_server.credentials.items()}
    for _ in range(8):
        command = [sys.executable, "-m", "tests.storage.measure_memory", s3_url, "1"]
        done = subprocess.run(command, env={**os.environ, **keys}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
