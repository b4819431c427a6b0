"""`holdfast jobs why`: explains why a job is not running."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli.database import on_engine
from holdfast.cli.ids import job_id
from holdfast.cli.output import Styled, print_json, print_sentence, print_table
from holdfast.cli.parser import command
from holdfast.model import Job

if TYPE_CHECKING:
    from holdfast.engine import Clause, Engine

# Remedies for conditions that are not met.
REMEDIES = {
    "extension": "Start a worker or a server of an app that includes it: `holdfast worker --app module:app`.",
    "hook": "If it failed, the traceback is in the log of the process that ran it.",
    "due": "If this persists, no worker is running: start one with `holdfast worker --app module:app`.",
    "queue": "Resume it with `holdfast queues resume {queue}`.",
    "limit": "`holdfast limits list` shows all limits, `holdfast limits set` changes one.",
    "workers": "Start one with `holdfast worker --app module:app`; `holdfast workers list` shows the registered ones.",
    "type": "Start one with `holdfast worker --app module:app`; `holdfast workers list` shows the job types of each.",
    "scope": "Start one without --queues, or with this queue; `holdfast workers list` shows them.",
    "tenant": "Register one for this tenant, or for all tenants.",
    "capabilities": "Start a worker that has them; `holdfast workers list` shows the capabilities of each.",
}


def add_to(verbs: Any) -> None:
    parser = command(
        verbs,
        "why",
        why,
        about="explain why a job is not running",
        more="The answer is the first condition of a claim that is not met; all conditions are listed below it.",
        examples=["holdfast jobs why 01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f"],
    )
    parser.add_argument("job", metavar="ID", help="job id, or a prefix of it")


@on_engine
async def why(engine: Engine, options: argparse.Namespace) -> None:
    job = await engine.reads.get(await job_id(engine, options.job))
    clauses = await engine.reads.why(job.id)
    answer = _answer(job, clauses)
    if options.json:
        listed = [{"name": clause.name, "holds": clause.holds, "says": clause.says} for clause in clauses]
        print_json({"jobId": job.id, "answer": answer, "clauses": listed})
    else:
        print_sentence(answer)
        if len(clauses) > 1 or not job.final:  # a finished job has no conditions, except those of its extensions
            print()
            print_table(["met", "condition", "details"], map(_row, clauses))


def _answer(job: Job, clauses: list[Clause]) -> str:
    from holdfast.engine.reads.why import in_short

    broken = next((clause.name for clause in clauses if not clause.holds), "")
    remedy = REMEDIES.get(broken, "").format(queue=job.queue)
    if job.final and broken == "state":
        shown = "error" if job.error else "details"
        remedy = f"`holdfast jobs show {job.id}` shows the {shown}; `holdfast jobs redrive {job.id}` runs it again."
    return f"{in_short(clauses)} {remedy}".rstrip()


def _row(clause: Clause) -> list[Styled | str]:
    return [Styled("yes", "green") if clause.holds else Styled("no", "red"), clause.name, clause.says]
