"""`holdfast extensions`: what needs which extension, and the end of one that is no more."""

import io
import sys
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.model import JobType, NewJob
from tests.cli.conftest import Holdfast, Meanwhile


async def follow(*_: Any) -> None: ...


async def retired(engine: Engine) -> None:
    """An app with the extension `notes` was here once."""
    engine.ctx.hooks.effect("notes", ["complete"], ["n"], follow)
    await engine.job_types.declare(JobType(name="n", lifecycle="default"), app="shop")
    await engine.create(NewJob(type="n"))


def test_an_extension_is_listed_and_forgotten(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(retired)
    assert holdfast("extensions", "list").rows == [["notes", "no", "never", "n", "1"]]
    [listed] = holdfast("extensions", "list", "--json").json["extensions"]
    assert listed == {"name": "notes", "live": False, "seenAt": None, "jobTypes": {"n": ["shop"]}, "jobs": 1}
    assert "holdfast extensions forget notes" in holdfast("doctor").out
    asked = holdfast("extensions", "forget", "notes")
    assert (asked.code, asked.err) == (
        2,
        "holdfast: --yes is needed to forget an extension when standard input is not a terminal\n",
    )
    done = holdfast("extensions", "forget", "notes", "--yes")
    assert (done.code, done.out) == (0, "extension 'notes' is forgotten: detached 1 job type and 1 job\n")
    assert holdfast("extensions", "list").out == ""
    again = holdfast("extensions", "forget", "notes", "--yes")
    assert (again.code, again.err) == (2, "holdfast: unknown extension 'notes'; known: none.\n")


@pytest.mark.parametrize(("typed", "left"), [("n\n", 1), ("y\n", 0)])
def test_forget_asks_for_confirmation(
    holdfast: Holdfast, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch, typed: str, left: int
) -> None:
    meanwhile(retired)
    terminal = io.StringIO(typed)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    answer = holdfast("extensions", "forget", "notes")
    question = "1 unfinished job will continue without the hooks of extension notes.\nforget notes? [y/N] "
    assert answer.err == question + ("nothing was done\n" if left else "")
    assert answer.code == left
    assert len(holdfast("extensions", "list").rows) == left


def test_an_extension_of_a_live_process_cannot_be_forgotten(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    async def alive(engine: Engine) -> None:
        await retired(engine)
        await engine.maintenance.extension_tasks([])

    meanwhile(alive)
    answer = holdfast("extensions", "forget", "notes", "--yes")
    assert (answer.code, "a live process has extension 'notes'" in answer.err) == (4, True)
