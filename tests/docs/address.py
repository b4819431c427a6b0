"""The address that every page uses, and the free port that stands for it while a page is tried.

Pages say `holdfast serve`, `http://127.0.0.1:8080` and `--metrics-port 9464`; tests of several pages run side by side,
on one machine.
"""

from __future__ import annotations

import re
import socket

WRITTEN = "127.0.0.1:8080"
_METRICS = re.compile(r"\b9464\b")
_LISTENS = re.compile(r"\bholdfast (?:serve|dev)\b(?!.* --port)")


class Address:
    def __init__(self) -> None:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            self._port, self._metrics_port = first.getsockname()[1], second.getsockname()[1]

    def here(self, text: str) -> str:
        return _METRICS.sub(str(self._metrics_port), text.replace(WRITTEN, f"127.0.0.1:{self._port}"))

    def typed(self, command: str) -> str:
        return _LISTENS.sub(lambda found: f"{found[0]} --port {self._port}", self.here(command))
