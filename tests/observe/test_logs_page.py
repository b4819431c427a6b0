"""docs/operate/logs.md: its tables have the fields that lines have."""

import json
import re
from pathlib import Path

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.model.reports import Settled
from holdfast.observe.transition_log import TransitionLog
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.outcomes import Failed
from tests.docs.pages import PAGES, blocks
from tests.observe.captured import hearing

PAGE = "docs/operate/logs.md"
EXAMPLES = [json.loads(block.text) for block in blocks(PAGE, "json")]


def fields(title: str) -> set[str]:
    [table] = re.findall(rf"(?m)^\| {title} \|.*\n((?:\|.*\n)+)", PAGES[PAGE])
    return set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines())))


COMMON = fields("field") - {"exception", "stack"}


async def test_a_transition_has_the_documented_fields(engine: Engine, clock: MovableClock, tmp_path: Path) -> None:
    with hearing(tmp_path) as heard:
        engine.ctx.observers.append(TransitionLog(heard.log, engine.ctx.lifecycles))
        await engine.create(NewJob(type="j", tenant="t", lifecycle="images"))
        [line] = heard.lines
    assert line.keys() == COMMON | fields("field of a transition")


def test_an_attempt_has_the_documented_fields(tmp_path: Path) -> None:
    class Span:
        trace_id = 5

        def get_span_context(self) -> "Span":
            return self

    class Lease:
        id, type, queue, tenant, lifecycle, attempt, max_attempts = "j", "t", "q", "t", "images", 1, 5

    class Run:
        lease, seconds, span = Lease(), 1.0, Span()

    with hearing(tmp_path) as heard:
        AttemptLog(heard.log).ended([(Run(), Failed("E", "", {"traceback": "T"}))], [Settled("j", State.DEAD)])  # type: ignore[list-item]
        [line] = heard.lines
    assert line.keys() == COMMON | fields("field of an attempt")
    assert line["trace_id"] == f"{5:032x}"


def test_the_examples_are_real_log_lines() -> None:
    assert len(EXAMPLES) == 4
    for example in EXAMPLES:
        assert list(example)[:5] == ["time", "level", "logger", "message", "pid"]
        known = COMMON | fields("field of a transition") | fields("field of an attempt") | {"dropped"}
        assert example.keys() <= known
