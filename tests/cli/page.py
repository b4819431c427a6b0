"""docs/reference/cli.md: its examples, how they are run, and how their output is written again.

`python -m tests.cli.page` runs every example and puts what it printed into the page.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.assembly.engine import open_engine
from holdfast.engine import Engine
from holdfast.settings import Settings
from holdfast.store.queries import Query
from tests.cli.processes import on_terminal, without_escapes
from tests.cli.sample_jobs import dead, half_done, succeeded
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"
_BLOCK = re.compile(r"(?ms)^```console\n(.*?)^```$")
_COMMAND = re.compile(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)")
_ID = re.compile(r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{16})\b")
_PASSING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b(\d\d-\d\d )?\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\bworker [0-9a-f]{8}\b(?!-)"), "WORKER"),
    (re.compile(r"\b\d+ (s|m|h|d)\b"), "SPAN"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Example:
    command: str
    prints: str


def examples(page: str) -> Iterator[Example]:
    for block in _BLOCK.finditer(page):
        for found in _COMMAND.finditer(block[1]):
            yield Example(found[1], found[2])


def prepare(folder: Path) -> None:
    """The system that the page looks at: three jobs that have been worked on."""

    async def story() -> None:
        engine = await open_engine(Settings(database_url=f"sqlite:///{folder}/.holdfast/holdfast.db"))
        await _work(engine)
        await engine.close()

    asyncio.run(story())


async def _work(engine: Engine) -> None:
    await succeeded(engine, type="send_email", queue="mail", payload={"to": "a@example.com"})
    await dead(engine, "E_SMTP", "mailbox full", type="send_email", queue="mail", payload={"to": "b@example.com"})
    await half_done(engine, policy={"lease_seconds": 3600})  # however long it takes to type all examples
    gone = Query("gone", "INSERT INTO holdfast_extensions (name, seen_at) VALUES ('notes', {now-86400}) RETURNING name")
    await engine.store.write(lambda tx: tx.all(gone))


def run(command: str, folder: Path, **variables: str) -> str:
    """What a person sees who types this, on a terminal of 140 columns."""
    here = str(Path(sys.executable).parent)
    _, seen = on_terminal(
        program=["bash", "-c", f'PATH="{here}:$PATH"; {command}'], folder=folder, columns=140, **variables
    )
    return without_escapes(seen)


class Names:
    """Ids are new in each run: the ones on the page stand for those of this run, in the order in which they appear."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def learn(self, said: str, seen: str) -> None:
        for ours, real in zip(_ID.findall(said), _ID.findall(seen), strict=False):
            self._real.setdefault(ours, real)

    def real(self, text: str) -> str:
        return _ID.sub(lambda found: self._real.get(found[0], found[0]), text)


def lasting(text: str) -> str:
    """Without what differs from run to run: times, spans, and the widths that follow from them."""
    for pattern, stands_for in _PASSING:
        text = pattern.sub(stands_for, text)
    return text


def rewritten(page: str, folder: Path) -> str:
    names = Names()

    def again(found: re.Match[str]) -> str:
        seen = run(names.real(found[1]), folder)
        names.learn(found[2], seen)
        return f"$ {names.real(found[1])}\n{seen}"

    return _BLOCK.sub(lambda block: f"```console\n{_COMMAND.sub(again, block[1])}```", page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        prepare(Path(directory))
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), Path(directory)), encoding="utf-8")
