"""`python -m tests.client.generate` writes the sync client: the async one without its `async` and `await`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[2] / "src/holdfast/client"
COMMAND = "python -m tests.client.generate"
MODULES = ("connection", "worker_api", "job", "client")

_WORDS = {
    "AsyncClient": "Client",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "Client": "SyncClient",
    "HttpConnection": "SyncHttpConnection",
    "RemoteJob": "SyncRemoteJob",
    "WorkerApi": "SyncWorkerApi",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aclosing": "closing",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
}
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
_ASYNC = re.compile(r"\b(?:async|await) ")
_IMPORT = re.compile(rf"holdfast\.client\.({'|'.join(MODULES)})\b")


def generated(module: str) -> str:
    """The sync twin of a module, formatted."""
    source = (CLIENT / f"{module}.py").read_text(encoding="utf-8")
    source = _IMPORT.sub(r"holdfast.client.sync.\1", _ASYNC.sub("", source))
    source = source.replace("clock.sleep(", "clock.block(")
    head, body = source.split("\n", 1)
    return _formatted(f"{head}\n\n# Made by `{COMMAND}` from {module}.py, and to be changed there.\n{_renamed(body)}")


def _renamed(source: str) -> str:
    """Ours get a name of their own; httpx2's own `Client` is the sync one already."""
    renamed = _WORD.sub(lambda found: _WORDS[found[0]], source)
    return renamed.replace("httpx2.SyncClient", "httpx2.Client")


def _formatted(source: str) -> str:
    for tidy in (["check", "--select", "I,UP028", "--fix-only", "--unsafe-fixes", "-q"], ["format", "-q"]):
        source = subprocess.run(
            [sys.executable, "-m", "ruff", *tidy, "--stdin-filename", str(CLIENT / "sync/module.py"), "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return source


def path_of(module: str) -> Path:
    return CLIENT / f"sync/{module}.py"


if __name__ == "__main__":
    for module in MODULES:
        path_of(module).write_text(generated(module), encoding="utf-8")
