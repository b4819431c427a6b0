"""`holdfast jobs why`: why a job does not run now, in plain words."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli.database import with_engine
from holdfast.cli.ids import job_id
from holdfast.cli.output import Styled, print_json, print_sentence, print_table
from holdfast.cli.parser import command
from holdfast.model import Job

if TYPE_CHECKING:
    from holdfast.engine import Clause, Engine

# What to do about a condition that does not hold, where there is something to do.
REMEDIES = {
    "extension": "Start a worker or a server of an app that includes it: `holdfast worker --app module:app`.",
    "hook": "If it has failed, the log of the process that tried it has the traceback.",
    "due": "If it stays so, no worker is running: `holdfast worker --app module:app` starts one.",
    "queue": "`holdfast queues resume {queue}` opens it.",
    "workers": "`holdfast worker --app module:app` starts one, `holdfast workers list` shows those there are.",
    "type": "`holdfast worker --app module:app` starts one; `holdfast workers list` shows what each runs.",
    "scope": "Start one without --queues, or with this queue among them; `holdfast workers list` shows them.",
    "tenant": "Register one for it, or one for all tenants.",
    "capabilities": "Start a worker that does; `holdfast workers list` shows what each offers.",
}


def add_to(verbs: Any) -> None:
    parser = command(
        verbs,
        "why",
        why,
        about="say why a job does not run now",
        more="The first condition of the claim that does not hold is the answer; the others follow as a list.",
        examples=["holdfast jobs why 01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f"],
    )
    parser.add_argument("job", metavar="ID", help="the id of the job, or the beginning of it")


def why(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        job = await engine.reads.get(await job_id(engine, options.job))
        clauses = await engine.reads.why(job.id)
        answer = _answer(job, clauses)
        if options.json:
            said = [{"name": clause.name, "holds": clause.holds, "says": clause.says} for clause in clauses]
            print_json({"jobId": job.id, "answer": answer, "clauses": said})
        else:
            print_sentence(answer)
            print()
            print_table(["holds", "condition", "what it says"], map(_row, clauses))
        return 0

    return with_engine(options, work)


def _answer(job: Job, clauses: list[Clause]) -> str:
    from holdfast.engine.reads.why import in_short

    broken = next((clause.name for clause in clauses if not clause.holds), "")
    return f"{in_short(clauses)} {REMEDIES.get(broken, '').format(queue=job.queue)}".rstrip()


def _row(clause: Clause) -> list[Styled | str]:
    return [Styled("yes", "green") if clause.holds else Styled("no", "red"), clause.name, clause.says]
