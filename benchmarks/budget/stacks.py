"""Where PostgreSQL itself spends the CPU time of claim and complete by 100, by stacks that perf samples: where it is
installed and may attach to the processes of the server."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.databases import PostgresDatabase, PostgresHost
from benchmarks.implementations import EngineCalls
from benchmarks.operations import drain, filled

HERTZ, STACK_BYTES = 4999, 16_384
ATTACH_SECONDS = 1.0
REPORT_SECONDS = 60.0

# A sample belongs to the first of these of which any function is on its stack.
STAGES = {
    "commit": r"CommitTransactionCommand|XLogFlush",
    "protocol and result rows": r"pq_\w+|secure_(read|write)|printtup|WaitEventSetWait|ReadyForQuery",
    "parsing and planning": r"pg_plan_quer\w+|planner|raw_parser|pg_analyze_and_rewrite\w*|GetCachedPlan",
    "triggers": r"Exec[AB][RS]\w+Triggers\w*|AfterTrigger\w+|ExecCallTriggerFunc",
    "checks": r"ExecConstraints",
    "inserts into indexes": r"ExecInsertIndexTuples|btinsert|_bt_doinsert",
    "heap: update": r"heap_update|simple_heap_update",
    "heap: insert": r"heap_(multi_)?insert",
    "heap: delete": r"heap_delete",
    "heap: row locks": r"heap_lock_tuple",
    "heap: pruning": r"heap_page_prune\w*",
    "reads of indexes and their rows": r"index_\w+|btgettuple|_bt_first|btgetbitmap|heap_hot_search_buffer",
    "start and end of statements": r"standard_Executor(Start|End|Finish)|PortalStart|PortalDrop",
    "execution of plans": r"standard_ExecutorRun|PortalRun",
}
_STAGES = {name: re.compile(rf"(?:{functions})$") for name, functions in STAGES.items()}
REST = "the rest"


async def stacks(machine: PostgresHost, jobs: int) -> list[dict[str, Any]]:
    """Empty where that cannot be known."""
    perf = shutil.which("perf")
    if perf is None:
        return []
    with tempfile.TemporaryDirectory() as directory:
        samples = Path(directory) / "samples"
        async with machine.fresh() as database:
            calls = await EngineCalls.open(database)
            try:
                await filled(calls, jobs=2 * jobs)
                await drain(calls, jobs=jobs, by=100)
                await _sampled(perf, samples, database, calls, jobs)
            finally:
                await calls.close()
        return shares(await asyncio.to_thread(_script, perf, samples))


async def _sampled(perf: str, samples: Path, database: PostgresDatabase, calls: EngineCalls, jobs: int) -> None:
    rows = await database.rows("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
    command = [perf, "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "--call-graph", f"dwarf,{STACK_BYTES}"]
    command += ["-p", ",".join(str(row["pid"]) for row in rows), "-o", str(samples)]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    await asyncio.sleep(ATTACH_SECONDS)
    await drain(calls, jobs=jobs, by=100)
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    await process.wait()


def _script(perf: str, samples: Path) -> str:
    """Each sample as its stack, innermost function first."""
    if not samples.exists():
        return ""
    command = [perf, "script", "-i", str(samples), "--no-inline", "-F", "ip,sym"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=REPORT_SECONDS, check=False)
    return done.stdout


def shares(script: str) -> list[dict[str, Any]]:
    counted = Counter(stage_of(sample) for sample in script.split("\n\n") if sample.strip())
    total = sum(counted.values())
    return [{"stage": name, "share": round(count / total, 4)} for name, count in counted.most_common()]


def stage_of(sample: str) -> str:
    functions = [line.split()[1] for line in sample.splitlines() if len(line.split()) > 1]
    for name, stage in _STAGES.items():
        if any(map(stage.match, functions)):
            return name
    return REST
