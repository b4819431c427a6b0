"""`holdfast top`: one render, the same as JSON, and the view that goes on."""

import asyncio
import io
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.cli.top.collector import Collector
from holdfast.cli.top.render import render, shared
from holdfast.cli.top.snapshot import EndedRow, LimitRow, QueueRow, RunningRow, TopSnapshot, WorkerRow, totals_of
from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.reads import live_view
from holdfast.engine.reads.live_view import Counts
from holdfast.model import NewJob
from holdfast.model.limits import Limit
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.processes import holdfast as run_holdfast
from tests.cli.sample_jobs import claimed, dead, half_done, succeeded
from tests.cli.screen import FIRST_SCREEN, OTHER_SCREEN, Screen
from tests.servers.postgres import PostgresServer, running

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONCE = ("top", "--interval", "0.1")


async def a_day(engine: Engine) -> None:
    """Jobs that wait, that run, that are tried again, that ended; and a queue that is held back."""
    await succeeded(engine, type="send-email", queue="mail")
    await dead(engine, "E_SMTP", "mailbox full", type="send-email", queue="mail")
    worker, lease = await claimed(engine, type="send-email", queue="mail")
    await engine.fail(worker, lease.id, lease.token, "E_BUSY", retry_after_seconds=600)
    await engine.create_many([NewJob(type="film", queue="video")] * 3)
    await engine.create(NewJob(type="report", delay_seconds=600))
    await engine.queues.pause("video", by="alice")
    await half_done(engine)


# -- one render -----------------------------------------------------------------------------------------------------


def test_json_shows_waiting_running_and_finished_jobs(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(a_day)
    seen = holdfast(*ONCE, "--json").json
    default, mail, video = seen["queues"]
    assert (default["queue"], default["running"], default["delayed"]) == ("default", 1, 1)
    assert (mail["queue"], mail["retrying"], mail["deadLastHour"], mail["pausedAt"]) == ("mail", 1, 1, None)
    assert (video["queue"], video["waiting"], video["pausedBy"]) == ("video", 3, "alice")
    assert video["oldestWaitingAt"] is not None
    numbers = {"waiting": 3, "delayed": 1, "retrying": 1, "created": 0, "running": 1, "deadLastHour": 1}
    assert seen["totals"] == numbers | {"inPerSecond": 0.0, "outPerSecond": 0.0}
    [worker] = seen["workers"]
    assert (worker["name"], worker["leases"], worker["status"]) == ("busy-bee", 1, "busy")
    [job] = seen["running"]
    assert (job["jobType"], job["attempt"], job["percent"], job["step"]) == ("render", 1, 50.0, "encode")
    assert [(job["storedState"], job["state"], job["code"]) for job in seen["ended"]] == [
        ("dead", "dead", "E_SMTP"),
        ("succeeded", "succeeded", None),
    ]


def test_the_screen_shows_waiting_running_and_finished_jobs(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(a_day)
    answer = holdfast(*ONCE, "--once")
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    assert holdfast(*ONCE).out.splitlines()[1] == answer.out.splitlines()[1], "no terminal: once, without being told"
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[1].startswith("3 waiting, 1 running, 1 retrying, 1 delayed, 1 died in the last hour")
    assert lines[2].startswith("0.0/s in")
    assert any(line.startswith("video (paused by alice) 3 0 0 0 0") for line in lines)
    assert any(line.endswith("busy-bee busy 1 1 never") for line in lines)
    assert any("render 1/5" in line and line.endswith("█████░░░░░ 50 % encode") for line in lines)
    assert any(line.endswith("dead E_SMTP") for line in lines)


def test_an_empty_database_is_no_error(holdfast: Holdfast) -> None:
    seen = holdfast(*ONCE, "--json").json
    assert [seen[part] for part in ("queues", "limits", "workers", "running", "ended")] == [[]] * 5
    words = ("no unfinished jobs", "no live workers", "no running jobs", "no recently finished jobs")
    shown = holdfast(*ONCE).out
    assert all(word in shown for word in words)
    assert "limit" not in shown


async def some_limits(engine: Engine) -> None:
    await engine.job_limits.set("gpu", Limit(2), by="alice")
    await engine.job_limits.set("key:crawl", Limit.of(1, "10/s"), by="alice")
    await engine.job_limits.set("api", Limit.of(rate="30/min", burst=20), by="alice")
    for domain in ("a.com", "b.com"):
        await claimed(engine, type="crawl", limit_key=domain, limits={"gpu": 1})


def test_limits_are_shown_full_ones_first(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(some_limits)
    lines = [" ".join(line.split()) for line in holdfast(*ONCE).out.splitlines()]
    place = lines.index("limit in use at once full keys rate")
    assert lines[place + 1 : place + 5] == ["gpu 2 2", "key:crawl 2 1 a key 2 10/s a key", "api 0 30/min", ""]
    assert holdfast(*ONCE, "--json").json["limits"] == [
        {"limit": "api", "used": 0, "concurrency": None, "rate": 0.5, "tokens": 20.0, "full": 0},
        {"limit": "gpu", "used": 2, "concurrency": 2, "rate": None, "tokens": None, "full": 1},
        {"limit": "key:crawl", "used": 2, "concurrency": 1, "rate": 10.0, "tokens": None, "full": 2},
    ]


async def test_the_limits_of_which_most_is_used_are_shown(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "LIMITS_MAX", 2)
    await some_limits(engine)
    watch = Collector(engine, "here")
    assert [row.limit for row in (await watch.collect()).limits] == ["gpu", "key:crawl"]
    await watch.close()


@pytest.mark.parametrize("interval", ["0", "61", "soon"])
def test_the_interval_is_a_duration(holdfast: Holdfast, interval: str) -> None:
    assert holdfast("top", "--interval", interval).code == 2


# -- looking again and again -----------------------------------------------------------------------------------------


async def test_rates_are_the_difference_of_two_snapshots(engine: Engine, clock: MovableClock) -> None:
    watch = Collector(engine, "here")
    await succeeded(engine, queue="mail")
    assert (await watch.collect()).totals.in_per_second is None
    await succeeded(engine, queue="mail")
    await engine.create_many([NewJob(type="a")] * 9)
    clock.advance(2)
    frame = await watch.collect()
    assert [(line.queue, line.in_per_second, line.out_per_second) for line in frame.queues] == [
        ("default", 4.5, 0.0),
        ("mail", 0.5, 0.5),
    ]
    clock.advance(1)
    assert (await watch.collect()).totals.in_per_second == 0.0
    await watch.close()


async def test_many_events_are_represented_by_the_newest(
    engine: Engine, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_view, "FLOW_SAMPLE", 100)
    watch = Collector(engine, "here")
    await watch.collect()
    for _ in range(20):
        await engine.create_many([NewJob(type="a")] * 10)
    clock.advance(1)
    rate = (await watch.collect()).totals.in_per_second
    assert rate is not None
    assert 150 < rate < 250
    await watch.close()


async def test_finished_jobs_are_listed_once_newest_first(engine: Engine) -> None:
    watch = Collector(engine, "here")
    first = await succeeded(engine)
    assert [job.job_id for job in (await watch.collect()).ended] == [first]
    second = await dead(engine)
    for _ in range(2):
        assert [job.job_id for job in (await watch.collect()).ended] == [second, first]
    await watch.close()


async def test_after_a_long_gap_there_are_no_rates(engine: Engine, clock: MovableClock) -> None:
    watch = Collector(engine, "here")
    await watch.collect()
    await engine.create(NewJob(type="a"))
    clock.advance(3600)
    assert (await watch.collect()).totals.in_per_second is None
    clock.advance(1)
    assert (await watch.collect()).totals.in_per_second == 0.0
    await watch.close()


async def test_a_worker_without_heartbeats_is_shown_as_silent(engine: Engine, worker: str, clock: MovableClock) -> None:
    watch = Collector(engine, "here")
    clock.advance(89)
    assert [line.status for line in (await watch.collect()).workers] == ["active"]
    clock.advance(2)
    assert [line.status for line in (await watch.collect()).workers] == ["silent"]
    await watch.close()


async def test_snapshots_do_not_wait_for_a_slow_count(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, may_go_on = Collector(engine, "here"), asyncio.Event()
    count = watch._count

    async def slow() -> Counts:
        await may_go_on.wait()
        return await count()

    await engine.create(NewJob(type="a"))
    await watch.collect()
    monkeypatch.setattr(watch, "_count", slow)
    monkeypatch.setattr(watch, "_count_again", 0.0)
    await engine.create(NewJob(type="a"))
    assert (await watch.collect()).totals.waiting == 1, "the count before"
    may_go_on.set()
    async with asyncio.timeout(60):
        while (await watch.collect()).totals.waiting == 1:
            continue
    await watch.close()


# -- fitting the terminal --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "wanted", "got"),
    [
        (40, [3, 1, 5, 9], [3, 1, 5, 9]),
        (8, [9, 9, 9, 9], [2, 2, 2, 2]),
        (9, [1, 9, 9, 9], [1, 3, 3, 2]),
        (0, [9, 9, 9, 9], [1, 1, 1, 1]),
    ],
)
def test_screen_lines_are_distributed_evenly(lines: int, wanted: list[int], got: list[int]) -> None:
    assert shared(lines, wanted) == got


def crowd(number: int, words: str = "a name that is longer than it should be") -> TopSnapshot:
    """Everything there can be on a screen, so many times."""
    queues = [QueueRow(queue=f"{words} {n}", waiting=10**9, paused_at=NOW, paused_by=words) for n in range(number)]
    return TopSnapshot(
        database="sqlite:///" + words,
        at=NOW,
        counted_at=NOW - timedelta(seconds=60),
        totals=totals_of(queues, rated=False),
        queues=queues,
        limits=[_limit(f"{words} {n}") for n in range(number)],
        workers=[_worker(f"{n:012}", words) for n in range(number)],
        running=[_running(f"{n:012}", words) for n in range(number)],
        ended=[_ended(f"{n:012}", words) for n in range(number)],
    )


def _limit(name: str) -> LimitRow:
    return LimitRow(limit=f"key:{name}", used=10**6, concurrency=10**6, rate=1.0, tokens=None, full=10**5)


def _worker(number: str, words: str) -> WorkerRow:
    return WorkerRow(
        worker_id=f"00000000-0000-4000-8000-{number}",
        name=words,
        status="disabled",
        slots=10**6,
        leases=10**6,
        last_heartbeat_at=NOW,
    )


def _running(number: str, words: str) -> RunningRow:
    return RunningRow(
        job_id=f"01900000-0000-7000-8000-{number}",
        job_type=words,
        queue=words,
        attempt=999,
        max_attempts=1000,
        step=words,
        percent=100.0,
        eta_at=NOW + timedelta(days=9),
        since=NOW - timedelta(days=9),
        cancel_requested=True,
        worker_id=f"00000000-0000-4000-8000-{number}",
    )


def _ended(number: str, words: str) -> EndedRow:
    return EndedRow(
        job_id=f"01900000-0000-7000-8000-{number}",
        job_type=words,
        queue=words,
        status="FAILED",
        state=words,
        stored_state="dead",
        code=words,
        attempt=1,
        max_attempts=5,
        seconds=0.01,
        at=NOW,
    )


def drawn(frame: TopSnapshot, width: int, height: int) -> list[str]:
    """What a person would see who has a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    shown = render(frame, width=width, height=height, trouble="away", foot="q quits")
    return ["".join(segment.text for segment in line) for line in console.render_lines(shown)]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (100, 18)])
@pytest.mark.parametrize("number", [0, 1, 7, 300])
def test_the_screen_fits_any_terminal_size(width: int, height: int, number: int) -> None:
    lines = drawn(crowd(number), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[-1].strip() == "q quits"
    tables = 5 if number and height >= 20 else 4  # a small terminal shows no limits
    assert any(line.startswith("limit ") for line in lines) == (tables == 5)
    assert any(" more" in line for line in lines) == (tables * (number + 2) + 5 > height)


def test_control_characters_of_users_are_escaped() -> None:
    lines = drawn(crowd(1, "[red]\x1b[31m"), 200, 60)
    assert "\x1b" not in "".join(lines)
    assert any(r"[red]\x1b[31m" in line for line in lines)


# -- on a terminal ---------------------------------------------------------------------------------------------------


def test_top_runs_until_q_and_restores_the_terminal(tmp_path: Path, store_url: str) -> None:
    run_holdfast("migrate", folder=tmp_path, url=store_url)
    with Screen("top", "--interval", "0.1", folder=tmp_path, HOLDFAST_DATABASE_URL=store_url) as screen:
        screen.until("no unfinished jobs", "q quits")
        assert screen.modes_now() != screen.modes
        run_holdfast("jobs", "create", "send-email", "--queue", "mail", folder=tmp_path, url=store_url)
        screen.until("1 waiting", "mail")
        screen.press("x")
        screen.until("1 waiting", "0.0/s in")
        screen.press("q")
        assert screen.end() == 0
        assert screen.modes_now() == screen.modes
        assert screen.drawn.rstrip().endswith(FIRST_SCREEN)
        assert "Traceback" not in screen.drawn


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_top_and_restores_the_terminal(tmp_path: Path, number: signal.Signals) -> None:
    run_holdfast("migrate", folder=tmp_path)
    with Screen("top", "--interval", "0.1", folder=tmp_path) as screen:
        screen.until("q quits")
        assert screen.end(number) == 0
        assert screen.modes_now() == screen.modes
        assert screen.drawn.rstrip().endswith(FIRST_SCREEN)
        assert "Traceback" not in screen.drawn


def test_once_prints_one_snapshot_on_a_terminal(tmp_path: Path) -> None:
    run_holdfast("migrate", folder=tmp_path)
    with Screen("top", "--once", "--interval", "0.1", folder=tmp_path) as screen:
        assert screen.end() == 0
        assert "no running jobs" in screen.drawn
        assert OTHER_SCREEN not in screen.drawn


def test_a_resize_redraws_the_screen_at_once(tmp_path: Path) -> None:
    run_holdfast("migrate", folder=tmp_path)
    with Screen("top", "--interval", "60", folder=tmp_path, columns=120) as screen:
        screen.until("no unfinished jobs", "q quits")
        screen.resize(70, 20)
        screen.process.send_signal(signal.SIGWINCH)
        assert len(screen.until("q quits").splitlines()) <= 20


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running() as server:
        yield server


@pytest.mark.postgres
@pytest.mark.slow
def test_a_database_outage_is_shown_and_top_waits_for_its_end(tmp_path: Path, server: PostgresServer) -> None:
    run_holdfast("migrate", folder=tmp_path, url=server.dsn())
    with Screen("top", "--interval", "0.1", folder=tmp_path, HOLDFAST_DATABASE_URL=server.dsn()) as screen:
        screen.until("no unfinished jobs", "q quits")
        server.stop()
        screen.until("database unreachable, retrying", "no unfinished jobs")
        server.start()
        run_holdfast("jobs", "create", "send-email", folder=tmp_path, url=server.dsn())
        assert "is away" not in screen.until("1 waiting")
        screen.press("q")
        assert screen.end() == 0
