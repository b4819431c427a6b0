"""A line for each move: what the database keeps as history, the log says in the same words."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import HookFailed
from holdfast.lifecycle import Lifecycles, State
from holdfast.model import NewJob
from holdfast.observe import transition_log
from holdfast.observe.log_formats import Text
from holdfast.observe.transition_log import TransitionLog
from holdfast.store import q
from holdfast.store.render import columns_of
from tests.engine.hooking import effect
from tests.engine.steps import ask, bring, run, sweep
from tests.observe.captured import Heard, hearing


@pytest.fixture
def heard(engine: Engine, tmp_path: Path) -> Iterator[Heard]:
    with hearing(tmp_path) as heard:
        engine.ctx.observers.append(TransitionLog(heard.log, engine.ctx.lifecycles))
        yield heard


async def history(engine: Engine) -> list[tuple[Any, ...]]:
    """Of all jobs, in the words of their lifecycles."""
    rows = await ask(
        engine,
        "SELECT job_id, verb, from_state, to_state, e.reason, e.attempt, actor, lifecycle, type, queue "
        "FROM holdfast_events e JOIN holdfast_jobs j ON j.id = job_id WHERE to_state IS NOT NULL ORDER BY job_id, seq",
    )
    return [_told(engine, *row) for row in rows]


def _told(
    engine: Engine,
    job: str,
    verb: str,
    source: str | None,
    target: str,
    reason: str | None,
    attempt: int,
    actor: str,
    lifecycle: str,
    *others: str,
) -> tuple[Any, ...]:
    words = engine.ctx.lifecycles[lifecycle].words
    said = None if source is None else words.get(State(source), source), words[State(target)]
    return (job, verb, *said, reason, attempt, actor, *others)


def told(heard: Heard) -> list[tuple[Any, ...]]:
    names = ("job_id", "verb", "from", "to", "reason", "attempt", "actor", "job_type", "queue")
    lines = [tuple(line[name] for name in names) for line in heard.lines]
    return sorted(lines, key=lambda line: line[0])  # as it was said, of each job


async def test_each_transition_is_logged_as_in_the_history(
    engine: Engine, worker: str, clock: MovableClock, heard: Heard
) -> None:
    """R002-49: job, from, to, reason and attempt, for every lifecycle, by every way into every state."""
    for machine in Lifecycles():
        for state in machine.words:
            await bring(engine, worker, machine, state)
    lost = await run(engine, worker, max_attempts=2)
    freed = await run(engine, worker)
    await engine.release(worker, freed.id, freed.token)
    await sweep(engine, clock, 4000)
    await engine.maintenance.requeue_due()
    assert told(heard) == await history(engine)
    assert {line["verb"] for line in heard.lines} >= {
        *("create", "accept", "claim", "complete", "fail", "release", "reject", "cancel", "reap", "requeue")
    }
    reaped = next(line for line in heard.about(lost.id) if line["verb"] == "reap")
    assert (reaped["from"], reaped["to"], reaped["level"]) == ("running", "retrying", "warning")


async def test_rolled_back_transitions_are_not_logged(engine: Engine, heard: Heard) -> None:
    @effect(engine, "create", job_type="j")
    async def refuse(*_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(HookFailed):
        await engine.create(NewJob(type="j"))
    assert heard.lines == []


def test_a_manually_written_row_cannot_forge_a_log_line(tmp_path: Path) -> None:
    """SEC-40."""
    forged = 'x"}\n{"level":"critical"}\r\x1b[2J\u2028\x85\u202e<b>'
    facts = dict.fromkeys(("type", "queue", "lifecycle", "reason"), forged) | {"id": "0", "state": "canceled"}
    row: Any = tuple(facts.get(name) for name in columns_of(q.cancel_waiting))
    with hearing(tmp_path) as heard:
        TransitionLog(heard.log, Lifecycles())(q.cancel_waiting, [row, row], "client")
        assert [line["reason"] for line in heard.lines] == [forged] * 2
        assert not {"\x1b", "\x85", "\u2028", "\u202e", "<"} & set(heard.text)


async def test_non_default_tenants_and_lifecycles_are_logged(engine: Engine, heard: Heard) -> None:
    usual = await engine.create(NewJob(type="j"))
    other = await engine.create(NewJob(type="j", tenant="t", lifecycle="images"))
    assert not {"tenant", "lifecycle"} & heard.about(usual.id)[0].keys()
    assert {"tenant": "t", "lifecycle": "images"}.items() <= heard.about(other.id)[0].items()


async def test_a_level_above_info_logs_only_lost_jobs(
    engine: Engine, worker: str, clock: MovableClock, tmp_path: Path
) -> None:
    with hearing(tmp_path, level=logging.WARNING) as heard:
        engine.ctx.observers.append(TransitionLog(heard.log, engine.ctx.lifecycles))
        lost = await run(engine, worker)
        await sweep(engine, clock, 200)
        assert [(line["job_id"], line["verb"]) for line in heard.lines] == [(lost.id, "reap")]


async def test_names_chosen_by_clients_use_bounded_memory(
    engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transition_log, "CACHE_MAX", 5)
    [observer] = engine.ctx.observers
    for number in range(20):
        await engine.create(NewJob(type=f"type {number}"))
    assert isinstance(observer, TransitionLog)
    assert all(len(known) <= 5 for known in observer._cache.values())
    assert {line["job_type"] for line in heard.lines} == {f"type {number}" for number in range(20)}


async def test_as_text_a_transition_is_one_line(engine: Engine, tmp_path: Path) -> None:
    with hearing(tmp_path, Text()) as heard:
        engine.ctx.observers.append(TransitionLog(heard.log, engine.ctx.lifecycles))
        job = await engine.create(NewJob(type="j", queue="mail"))
        await engine.cancel(job.id, reason="no more")
        line = heard.text.splitlines()[-1]
        assert line.endswith(
            f"INFO    holdfast.transitions: job {job.id} cancel: queued -> canceled "
            'job_type=j queue=mail reason="no more" attempt=0 actor=client'
        )
