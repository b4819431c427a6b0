"""A terminal in which somebody types what a page says. `command &` goes on in the background until the end.

Each has an address of its own, which stands for the one that the pages use.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.cli.background import Background
from tests.cli.page import Example, Names, lasting, run
from tests.docs.address import Address

_EXPORT = re.compile(r"export (\w+)=(.+)")
BIN = Path(sys.executable).parent


class Terminal:
    def __init__(self, folder: Path, address: Address, **variables: str) -> None:
        self._folder = folder
        self._address = address
        self._variables = variables
        self._names = Names()
        self._behind: list[Background] = []

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        for background in self._behind:
            background.process.kill()
            background.process.wait()

    def type(self, example: Example) -> None:
        """It prints what the page says, if the page says anything."""
        command = self._address.typed(self._names.real(example.command))
        if found := _EXPORT.fullmatch(command):
            self._variables[found[1]] = run(f"echo {found[2]}", self._folder, **self._variables).strip()
        elif command.endswith(" &"):
            self._behind.append(self._start(command.removesuffix(" &")))
        else:
            seen = run(command, self._folder, **self._variables)
            self._names.learn(example.prints, seen)
            if example.prints:
                prints = self._address.here(self._names.real(example.prints))
                assert lasting(seen) == lasting(prints), f"$ {command}\n{seen}"

    def _start(self, command: str) -> Background:
        program = ["bash", "-c", f'PATH="{BIN}:$PATH"; exec {command}']
        return Background(folder=self._folder, program=program, **self._variables)

    def end(self) -> None:
        """What is in the background is stopped, and ends well."""
        for background in self._behind:
            assert background.end() == 0, background.said
