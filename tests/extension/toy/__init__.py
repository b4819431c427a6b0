"""A toy extension: notes, and a ledger that books what happens to their jobs."""

from holdfast import App, Context
from holdfast.errors import Refused
from holdfast.extend import CreateRequest, Extension, Tx
from holdfast.model import Job

ext = Extension("notes")
ENTRY = {"succeeded": "commit", "dead": "release", "canceled": "release", "rejected": "forfeit"}


@ext.job("NOTE_INDEX", queue="notes", max_attempts=2)
async def index(ctx: Context, text: str) -> int:
    return len(text)


@ext.guard("create", job_type="NOTE_INDEX")
async def within_quota(tx: Tx, request: CreateRequest) -> None:
    if request.job.payload.get("text") == "forbidden":
        raise Refused("not this text", code="note_refused")


@ext.effect("create", "complete", "fail", "reject", "cancel", "reap")
async def book(tx: Tx, verb: str, job: Job) -> None:
    entry = "reserve" if verb == "create" else ENTRY.get(job.state)
    if entry is not None:
        await tx.run(ext.q.add_entry, job=job.id, entry=entry)


app = App(name="notes-app")
app.include(ext)
