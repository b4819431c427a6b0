"""Manifests of extensions with commands, and the functions of those commands."""

from datetime import UTC, datetime

from holdfast.errors import Conflict, NotFound
from holdfast.extend import Argument, Command, CommandCall, CommandGroup, Manifest, Report
from tests.extension.toy import Settings, ext

HERE = "tests.cli.note_commands"
JOB = Argument("job", about="the id of a job")
LEDGER = CommandGroup(
    name="ledger",
    about="show the ledger of notes, 100% of it",
    commands=(
        Command(
            name="show",
            about="list the entries of a job",
            run=f"{HERE}:show",
            examples=("holdfast ledger show JOB",),
            arguments=(JOB, Argument("--limit", about="at most so many", kind=int, least=1, most=500, default=20)),
        ),
        Command(
            name="add",
            about="add an entry",
            more="The audit log names it.",
            run=f"{HERE}:add",
            examples=("holdfast ledger add JOB 3 --reason typo",),
            arguments=(
                JOB,
                Argument("times", about="how often", kind=int, least=-3),
                Argument("--reason", about="why", required=True),
                Argument("--dry-run", about="change nothing", kind=bool),
                Argument("--mode", about="how", choices=("fast", "good"), default="good"),
            ),
        ),
        Command(name="check", about="check the ledger", run=f"{HERE}:check", arguments=(Argument("--run", about="x"),)),
        Command(name="lose", about="conflict", run=f"{HERE}:lose"),
        Command(name="sync", about="a function that is not async", run=f"{HERE}:sync"),
        Command(name="odd", about="return something else", run=f"{HERE}:odd"),
        Command(name="gone", about="import what is not there", run="no_such_module:gone"),
    ),
)
manifest = Manifest(name="notes", settings=Settings, commands=(LEDGER,), app="tests.extension.toy:app")
same_group = Manifest(name="books", commands=(LEDGER,))
group_of_the_core = Manifest(
    name="books", commands=(CommandGroup(name="jobs", about="books", commands=LEDGER.commands),)
)
without_app = Manifest(name="notes", settings=Settings, commands=(LEDGER,))


async def show(call: CommandCall) -> Report:
    found = await call.read(lambda tx: tx.all(ext.q.entries_of, job=call.arguments["job"]))
    if not found:
        raise NotFound("there is no such note", code="note_not_found")
    entries = [row["entry"] for row in found][: call.arguments["limit"]]
    at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [(entry, len(entry), None, at) for entry in entries]
    return Report({"entries": entries}, [f"{len(rows)} \x1bentries"], (["entry", "letters", "by", "at"], rows))


async def add(call: CommandCall) -> Report:
    job, times = call.arguments["job"], call.arguments["times"]
    async with call.tx() as tx:
        for number in range(times):
            await tx.run(ext.q.add_entry, job=job, entry=f"{call.arguments['mode']}-{number}")
        seen = await call.read(lambda tx: tx.all(ext.q.entries_of, job=job))
        await ext.audit(tx, "LEDGER_ADD", job, by=call.by, reason=call.arguments["reason"])
        if call.arguments["dry_run"]:
            raise Conflict("nothing was added", code="dry_run")
    return Report({"keepDays": ext.settings.keep_days, "seen": len(seen)}, ["added"])


async def check(call: CommandCall) -> Report:
    return Report({"wrong": 1}, ["1 account is wrong"], failed=True)


async def lose(call: CommandCall) -> Report:
    async with call.tx() as tx:
        await tx.run(ext.q.add_entry, job="lost", entry="x")
        async with call.tx():
            raise AssertionError


def sync(call: CommandCall) -> Report:
    return Report({})


async def odd(call: CommandCall) -> dict[str, int]:
    return {}
