"""Handlers in child processes: they may do what they like to their own, and nothing to the worker's."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.errors import LeaseLost, NotFound
from holdfast.lifecycle import State
from holdfast.model import Lease, Part, PartStatus
from holdfast.model.reports import Progress, Withdrawal, Withdrawn
from holdfast.worker.handler import Handler
from holdfast.worker.outcomes import Abandoned, Completed, Failed, Outcome, Released
from holdfast.worker.processes import child_process
from holdfast.worker.processes.process_pool import ChildExecution, ProcessPool
from holdfast.worker.processes.rlimits import rss_bytes
from tests.worker.poison_app import app

APP = "tests.worker.poison_app:app"
AT = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_SECONDS = 60.0


def lease_on(job_type: str, payload: dict[str, Any] | None = None, *, epoch: int = 1) -> Lease:
    return Lease(
        id="018f0000-0000-7000-8000-000000000001",
        token="018f0000-0000-4000-8000-000000000002",
        tenant="default",
        type=job_type,
        queue="default",
        lifecycle="default",
        priority=0,
        epoch=epoch,
        attempt=epoch,
        max_attempts=5,
        lost=0,
        expires_at=AT,
        claimed_at=AT,
        created_at=AT,
        run_at=AT,
        payload=payload or {},
        checkpoint=None,
        tags=[],
        trace=None,
        policy=1,
    )


class Recorder:
    """A line that keeps what it hears."""

    def __init__(self, parts: list[Part] | None = None, *, lost: bool = False) -> None:
        self.reports: list[Progress] = []
        self._parts, self._lost = parts or [], lost
        self.heard = asyncio.Event()

    async def progress(self, report: Progress) -> None:
        self.reports.append(report)
        self.heard.set()
        if self._lost:
            raise LeaseLost("job 1: the lease is lost", code="lease_lost")

    async def parts(self, job_id: str) -> list[Part]:
        return self._parts

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        if asked.target == "none":
            raise NotFound("there is no job none", code="job_not_found")
        return Withdrawn(asked.target, State.DEAD)


class Pool:
    def __init__(self, children: ProcessPool) -> None:
        self.children = children

    async def run(
        self,
        job_type: str,
        *,
        line: Recorder | None = None,
        alone: bool = False,
        on_started: Callable[[ChildExecution], None] = lambda _: None,
        epoch: int = 1,
        handler: Handler | None = None,
        **payload: Any,
    ) -> Outcome:
        return await self.children.run(
            lease_on(job_type, payload, epoch=epoch),
            handler or app.handlers[job_type],
            line or Recorder(),
            dedicated=alone,
            on_started=on_started,
        )

    @contextlib.asynccontextmanager
    async def running(self, job_type: str) -> AsyncIterator[tuple[ChildExecution, asyncio.Task[Outcome]]]:
        """A job in the middle of its work: it has reported progress."""
        line, started = Recorder(), asyncio.get_running_loop().create_future()
        job = asyncio.create_task(self.run(job_type, line=line, on_started=started.set_result))
        async with asyncio.timeout(PATIENCE_SECONDS):
            execution = await started
            await line.heard.wait()
            yield execution, job

    async def pid(self) -> int:
        return result_of(await self.run("add", a=1, b=1))["pid"]


@contextlib.asynccontextmanager
async def pool_of(reference: str = APP, *, most: int = 1, **limits: Any) -> AsyncIterator[Pool]:
    pool = Pool(ProcessPool(reference, most=most, clock=Clock(), **limits))
    try:
        yield pool
    finally:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await pool.children.close()


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with pool_of() as pool:
        yield pool


def result_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return outcome.result


def failure_of(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def until(condition: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> float:
    """How long it took."""
    since = time.monotonic()
    while not condition():
        assert time.monotonic() - since < seconds, "it did not happen"
        await asyncio.sleep(0.005)
    return time.monotonic() - since


@contextlib.contextmanager
def output_to_nowhere() -> Iterator[None]:
    stdout = os.dup(1)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


# -- behaving ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job_type", ["add", "add_sync"])
async def test_a_handler_runs_in_another_process_and_reports_from_there(pool: Pool, job_type: str) -> None:
    line, started = Recorder(), []

    result = result_of(await pool.run(job_type, line=line, on_started=started.append, a=1, b=2))

    assert result["sum"] == 3
    assert result["pid"] == result["state"] == started[0].pid != os.getpid()
    [report] = line.reports
    assert (report.percent, report.step, report.counters) == (50, "adding", {"terms": 2})


@pytest.mark.parametrize("job_type", ["in_parts", "in_parts_sync"])
async def test_parts_steps_and_checkpoints_go_through_the_line(pool: Pool, job_type: str) -> None:
    line = Recorder()

    result = result_of(await pool.run(job_type, line=line))

    assert result == {"did": ["low", "high"], "token": "made here", "checkpoint": {"reached": 2}}
    finished = [part for report in line.reports for part in report.parts if part.status == PartStatus.COMPLETED]
    assert [part.name for part in finished] == ["low", "high", "token"]
    assert line.reports[-1].checkpoint == {"reached": 2}


@pytest.mark.parametrize("job_type", ["in_parts", "in_parts_sync"])
async def test_what_an_earlier_attempt_finished_is_not_done_again(pool: Pool, job_type: str) -> None:
    low = Part(name="low", status=PartStatus.COMPLETED)
    token = Part(name="token", status=PartStatus.COMPLETED, data={"result": "made before"})

    result = result_of(await pool.run(job_type, line=Recorder([low, token]), epoch=2))

    assert (result["did"], result["token"]) == (["high"], "made before")


async def test_a_refused_report_is_the_same_error_inside(pool: Pool) -> None:
    failed = failure_of(await pool.run("add", line=Recorder(lost=True), a=1, b=2))

    assert (failed.code, failed.message) == ("lease_lost", "job 1: the lease is lost")


async def test_children_are_reused_and_started_only_when_needed() -> None:
    async with pool_of(most=2) as pool:
        assert await pool.pid() == await pool.pid()

        async with pool.running("look_at_the_flags") as (execution, job):
            assert await pool.pid() != execution.pid
            execution.cancel()
            await job


async def test_no_more_children_than_allowed_run_at_once() -> None:
    async with pool_of(most=2) as pool:
        results = await asyncio.gather(*(pool.pid() for _ in range(6)))

        assert len(set(results)) == 2


async def test_a_job_may_ask_for_a_child_of_its_own(pool: Pool) -> None:
    usual = await pool.pid()

    alone = result_of(await pool.run("add", alone=True, a=1, b=1))["pid"]

    assert alone != usual
    assert await pool.pid() != alone
    await until(lambda: not is_alive(alone) and not is_alive(usual))  # the one had to make room for the other


async def test_a_child_that_dies_while_idle_costs_no_job(pool: Pool) -> None:
    first = await pool.pid()
    os.kill(first, signal.SIGKILL)
    await until(lambda: not is_alive(first) and not pool.children._idle)

    assert await pool.pid() != first


async def test_an_app_in_a_script_is_found_by_its_file() -> None:
    async with pool_of("tests/worker/poison_app.py:app") as pool:
        assert result_of(await pool.run("add", a=2, b=2))["sum"] == 4


# -- crashing ---------------------------------------------------------------------------------------------------


async def test_an_exit_in_the_middle_is_a_failure_at_once_and_the_pool_goes_on(pool: Pool) -> None:
    failed = failure_of(await pool.run("exit_hard", code=7))

    assert failed.code == "E_CRASHED"
    assert "ended with exit code 7" in failed.message
    assert failed.context is not None
    assert failed.context["exitcode"] == 7
    assert failed.context["rssBytes"] > 2**20
    assert await pool.pid()


async def test_a_segfault_is_named(pool: Pool) -> None:
    failed = failure_of(await pool.run("segfault"))

    assert (failed.code, failed.context and failed.context["signal"]) == ("E_CRASHED", "SIGSEGV")


async def test_a_kill_from_outside_is_a_failure_at_once(pool: Pool) -> None:
    async with pool.running("loop_for_ever") as (execution, job):
        os.kill(execution.pid, signal.SIGKILL)

        failed = failure_of(await job)

    assert (failed.code, failed.context and failed.context["signal"]) == ("E_CRASHED", "SIGKILL")


async def test_a_system_exit_is_an_ordinary_error(pool: Pool) -> None:
    pid = await pool.pid()

    assert failure_of(await pool.run("exit_softly")).code == "SystemExit"
    assert await pool.pid() == pid


@pytest.mark.parametrize("how", ["forked", "started"])
async def test_what_a_handler_started_dies_with_its_child(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "pid"
    monkeypatch.setenv("HOLDFAST_TEST_PID_FILE", str(left))
    async with pool_of() as pool:
        failed = failure_of(await pool.run("leave_a_process_behind", how=how))

        assert failed.code == "E_CRASHED"
        await until(lambda: not is_alive(int(left.read_text())))


# -- limits -----------------------------------------------------------------------------------------------------


async def test_too_much_memory_is_a_memory_error_inside_and_the_child_goes_on(pool: Pool) -> None:
    pid = await pool.pid()

    assert failure_of(await pool.run("allocate", megabytes=300)).code == "MemoryError"
    assert result_of(await pool.run("allocate", megabytes=50)) == 50 * 2**20
    assert result_of(await pool.run("hoard", megabytes=300)) == pid  # the limit was that job's own


@pytest.mark.slow
async def test_too_much_cpu_time_ends_the_child_and_says_so(pool: Pool) -> None:
    failed = failure_of(await pool.run("burn"))

    assert failed.code == "E_CPU_LIMIT"
    assert "SIGXCPU" in failed.message
    assert "CPU time 1 s" in failed.message
    assert await pool.pid()


async def test_a_child_is_replaced_after_so_many_jobs() -> None:
    async with pool_of(jobs_max=2) as pool:
        pids = [await pool.pid() for _ in range(5)]

    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


async def test_a_child_that_has_grown_fat_is_replaced() -> None:
    async with pool_of(rss_max_bytes=150 * 2**20) as pool:
        first = await pool.pid()
        assert result_of(await pool.run("hoard", megabytes=200)) == first
        assert await pool.pid() != first
        await until(lambda: not is_alive(first))


# -- ending -----------------------------------------------------------------------------------------------------


async def test_a_canceled_async_handler_is_interrupted(pool: Pool) -> None:
    async with pool.running("wait_for_cancel") as (execution, job):
        execution.cancel()

        assert await job == Released()  # which the engine turns into canceled
    assert await pool.pid() == execution.pid


async def test_a_cancel_that_comes_with_the_start_is_not_missed(pool: Pool) -> None:
    assert await pool.run("wait_for_cancel", on_started=ChildExecution.cancel) == Released()
    assert await pool.pid()


async def test_a_child_withdraws_another_job_over_the_line(pool: Pool) -> None:
    """R000-32: also where it has no database."""
    assert result_of(await pool.run("withdraws", line=Recorder(), job="other")) == "dead"
    assert failure_of(await pool.run("withdraws", line=Recorder(), job="none")).code == "job_not_found"


async def test_a_lost_async_handler_has_nothing_to_report(pool: Pool) -> None:
    async with pool.running("wait_for_cancel") as (execution, job):
        execution.lose()

        assert await job == Abandoned()


async def test_a_handler_may_swallow_its_cancellation(pool: Pool) -> None:
    async with pool.running("swallow_cancel") as (execution, job):
        execution.cancel()

        assert result_of(await job) == {"canceled": True, "lost": False}


@pytest.mark.parametrize(
    ("tell", "flag"),
    [(ChildExecution.cancel, "canceled"), (ChildExecution.lose, "lost"), (ChildExecution.stopping, "stopping")],
)
async def test_a_sync_handler_sees_the_flag(pool: Pool, tell: Callable[[ChildExecution], None], flag: str) -> None:
    async with pool.running("look_at_the_flags") as (execution, job):
        tell(execution)

        assert [name for name, is_set in result_of(await job).items() if is_set] == [flag]


@pytest.mark.parametrize("job_type", ["loop_for_ever", "hold_the_gil"])
async def test_a_handler_that_does_not_listen_is_killed(pool: Pool, job_type: str) -> None:
    started: asyncio.Future[ChildExecution] = asyncio.get_running_loop().create_future()
    job = asyncio.create_task(pool.run(job_type, on_started=started.set_result))
    execution = await started
    execution.cancel()
    done, _ = await asyncio.wait({job}, timeout=0.3)
    assert not done

    execution.kill()

    assert failure_of(await job).context == {"signal": "SIGKILL", "rssBytes": pytest.approx(2**26, rel=1)}
    assert await pool.pid()


async def test_an_execution_that_is_over_cannot_hurt_the_next_one(pool: Pool) -> None:
    executions: list[ChildExecution] = []
    await pool.run("add", on_started=executions.append, a=1, b=1)

    async with pool.running("look_at_the_flags") as (execution, job):
        executions[0].kill()
        executions[0].cancel()
        execution.stopping()

        assert result_of(await job) == {"canceled": False, "stopping": True, "lost": False}
    assert execution.pid == executions[0].pid


async def test_a_run_that_is_canceled_kills_its_child(pool: Pool) -> None:
    async with pool.running("loop_for_ever") as (execution, job):
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        await until(lambda: not is_alive(execution.pid))
    assert await pool.pid()


async def test_a_handler_that_cancels_itself_has_failed(pool: Pool) -> None:
    assert failure_of(await pool.run("cancel_myself")).code == "E_CANCELLED"


async def test_signals_for_the_worker_do_not_end_its_children(pool: Pool) -> None:
    assert result_of(await pool.run("signal_myself")) == "still here"


async def test_closing_ends_the_idle_and_kills_the_running() -> None:
    async with pool_of(most=2) as pool:
        async with pool.running("loop_for_ever") as (execution, job):
            idle = await pool.pid()

            await pool.children.close()

            assert not is_alive(idle)
            assert not is_alive(execution.pid)
            assert failure_of(await job).code == "E_CRASHED"
        assert await pool.run("add", a=1, b=1) == Released()


async def test_closing_gives_back_a_job_whose_child_was_still_starting(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    async with pool_of("slow:app", path=[str(tmp_path), *sys.path]) as pool:
        job = asyncio.create_task(pool.run("add", a=1, b=1))
        await until(lambda: bool(pool.children._alive))

        await pool.children.close()

        assert await job == Released()


async def test_an_idle_child_leaves_the_lifespan_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left"
    monkeypatch.setenv("HOLDFAST_TEST_LEFT_FILE", str(left))
    async with pool_of() as pool:
        await pool.pid()

    assert left.read_text() == "left"


@pytest.mark.parametrize("job_type", ["loop_for_ever", "hold_the_gil"])
async def test_a_child_ends_with_its_worker_even_if_that_is_killed(job_type: str) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.worker.poison_parent", job_type, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        child = int(await parent.stdout.readline())
    assert is_alive(child)

    parent.kill()
    await parent.wait()

    assert await until(lambda: not is_alive(child)) < 5  # usually milliseconds


# -- what comes out of a handler --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_type", "payload", "code"),
    [
        ("no_json", {}, "result_not_json"),
        ("not_a_number", {}, "result_not_json"),
        ("huge_result", {"bytes_": 300 * 1024}, "result_too_large"),
        ("huge_result", {"bytes_": 64 * 2**20}, "result_too_large"),
        ("odd_error", {"what": "number"}, "invalid_outcome"),
        ("odd_error", {"what": "object"}, "invalid_outcome"),
        ("add", {"a": "one", "b": 2}, "invalid_payload"),
    ],
)
async def test_what_cannot_be_stored_is_a_permanent_failure(
    pool: Pool, job_type: str, payload: dict[str, Any], code: str
) -> None:
    failed = failure_of(await pool.run(job_type, **payload))

    assert (failed.code, failed.permanent) == (code, True)
    assert await pool.pid()


@pytest.mark.parametrize("length", [0, 10_000_000])
async def test_an_error_message_may_hold_anything(pool: Pool, length: int) -> None:
    failed = failure_of(await pool.run("complain", length=length))

    assert (failed.code, failed.permanent) == ("E_NAME", True)
    assert failed.message.startswith("no such file: ?")
    assert len(failed.message) < 100_000
    assert failed.context == {"name": "?", "length": length}, "R002-40: a number stays one"


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("nan", "counters_not_json"),
        ("object", "checkpoint_not_json"),
        ("huge", "checkpoint_too_large"),
        ("step", "invalid_progress"),
    ],
)
async def test_progress_that_cannot_be_stored_is_refused_inside(pool: Pool, what: str, code: str) -> None:
    line = Recorder()

    failed = failure_of(await pool.run("report_nonsense", line=line, what=what))

    assert (failed.code, line.reports) == (code, [])


async def test_a_gibibyte_of_output_does_not_pass_through_the_worker() -> None:
    before = rss_bytes()

    with output_to_nowhere():
        async with pool_of() as pool, asyncio.timeout(PATIENCE_SECONDS):
            assert result_of(await pool.run("print_much", mebibytes=1024)) == 2**30

    assert rss_bytes() - before < 50 * 2**20


async def test_a_child_inherits_nothing_but_its_line_and_the_standard_streams(tmp_path: Path) -> None:
    with (tmp_path / "worker.lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)  # even then
        async with pool_of(most=2) as pool, pool.running("look_at_the_flags") as (execution, job):
            files = result_of(await pool.run("open_files"))
            execution.cancel()
            await job

    assert not [target for target in files.values() if target.endswith("worker.lock")]
    assert len([target for target in files.values() if target.startswith("socket:")]) == 3  # and its loop's own pair


# -- starting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("tests.worker.no_such_module:app", "No module named 'tests.worker.no_such_module'"),
        ("tests.worker.poison_app:nothing", "has no 'nothing'"),
        ("tests.worker.poison_app", "names no app"),
        ("tests.worker.poison_app:HOARD", "lifespan_state"),
    ],
)
async def test_an_app_that_cannot_be_found_is_a_failure_with_the_reason(reference: str, reason: str) -> None:
    async with pool_of(reference) as pool:
        for _ in range(2):
            failed = failure_of(await pool.run("add", a=1, b=2))
            assert failed.code == "E_CHILD_START"
            assert reason in failed.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("import os; os._exit(5)", "ended with exit code 5"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
    ],
)
async def test_an_app_that_ends_its_process_when_imported_does_not_hang(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text)
    async with pool_of("broken:app", path=[str(tmp_path), *sys.path]) as pool:
        failed = failure_of(await pool.run("add", a=1, b=2))

    assert (failed.code, reason in failed.message) == ("E_CHILD_START", True), failed


async def test_an_app_that_takes_too_long_to_start_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(child_process, "START_SECONDS", 0.5)
    async with pool_of("slow:app", path=[str(tmp_path), *sys.path]) as pool:
        failed = failure_of(await pool.run("add", a=1, b=2))

    assert (failed.code, "not ready within 0.5 s" in failed.message) == ("E_CHILD_START", True)


async def test_a_machine_that_can_start_no_process_is_a_failure_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with pool_of() as pool:
        failed = failure_of(await pool.run("add", a=1, b=2))

    assert (failed.code, "No such file" in failed.message) == ("E_CHILD_START", True)


async def test_a_job_type_that_the_child_does_not_know_is_a_failure(pool: Pool) -> None:
    failed = failure_of(await pool.run("unheard_of", handler=app.handlers["add"]))

    assert failed.code == "E_CHILD_START"
    assert "unheard_of" in failed.message
