"""The address that every page uses, and the free port that stands for it while a page is tried.

Pages say `holdfast serve` and `http://127.0.0.1:8080`; tests of several pages run side by side, on one machine.
"""

from __future__ import annotations

import re
import socket

WRITTEN = "127.0.0.1:8080"
_LISTENS = re.compile(r"\bholdfast (?:serve|dev)\b(?!.* --port)")


class Address:
    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    def here(self, text: str) -> str:
        return text.replace(WRITTEN, f"127.0.0.1:{self._port}")

    def typed(self, command: str) -> str:
        return _LISTENS.sub(lambda found: f"{found[0]} --port {self._port}", self.here(command))
