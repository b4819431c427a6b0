"""A toy extension: notes, and a ledger that books what happens to their jobs."""

from typing import Annotated

import msgspec
from starlette.responses import PlainTextResponse, Response

from holdfast import App, Context, SyncContext
from holdfast.errors import NotFound, Refused
from holdfast.extend import (
    Checked,
    ClaimRequest,
    CreateRequest,
    Defer,
    Extension,
    Reply,
    Request,
    Secret,
    Stream,
    Tx,
    ok,
    stored,
)
from holdfast.model import Job
from holdfast.net import GuardedClient


class Settings(msgspec.Struct):
    keep_days: Annotated[int, msgspec.Meta(ge=1, description="how long a note is kept")] = 30
    storage_url: str = "files"
    api_key: Secret = ""


ext = Extension("notes", settings=Settings)
ENTRY = {"succeeded": "commit", "dead": "release", "canceled": "release", "rejected": "forfeit"}


indexed = ext.counter("indexed", "Notes that were indexed, by where.", ["place"])
length = ext.histogram("length", "How long notes are.", buckets=(10, 100))
open_pages = ext.gauge("open_pages", "Pages that are open.", exact=True)


ext.limit("notes_network", concurrency=5)


@ext.job("NOTE_INDEX", queue="notes", max_attempts=2, concurrency=3, fairness_key="text")
async def index(ctx: Context, text: str) -> int:
    indexed.add(1, "worker")
    ctx.metrics.length.observe(len(text))
    return len(text)


@ext.job("NOTE_SCAN", queue="notes", isolation="process")
def scan(ctx: SyncContext, text: str) -> int:
    indexed.add(1, "child")
    open_pages.set(3)
    return len(text)


@ext.job("NOTE_COPY", isolation="process")
async def copy(ctx: Context, text: str) -> int:
    """In one commit: an entry, a job and its own end."""
    async with ctx.part("words", total=len(text.split())) as part:
        await part.progress(done=1)
    async with ctx.transaction() as tx:
        await tx.run(ext.q.add_entry, job=ctx.job_id, entry="copied")
        await tx.enqueue(index, text)
        await tx.complete(len(text))
    return -1


@ext.job("NOTE_BOOK")
async def book(ctx: Context, texts: list[str]) -> int:
    """Its notes are jobs of their own; it holds no slot while they run."""
    if not await ctx.children():
        async with ctx.transaction() as tx:  # all of them or none: an execution that ends here makes none twice
            for text in texts:
                await tx.enqueue(index, text)
    if not all(note.final for note in await ctx.children()):
        raise ctx.wait_for_children()
    return sum(note.result for note in await ctx.children())


@ext.job("NOTE_DROP")
async def drop(ctx: Context, note_id: str) -> bool:
    """Cancel another job and end, in one commit."""
    async with ctx.transaction() as tx:
        await tx.cancel(note_id)
        await tx.complete(True)
    return True


@ext.job("NOTE_FETCH", max_attempts=1, limit_key="url", concurrency_per_key=1, limits={"notes_network": 2})
async def fetch(url: str) -> int:
    async with GuardedClient() as client:
        return len((await client.get(url)).body)


@ext.guard("create", job_type="NOTE_INDEX")
async def within_quota(tx: Tx, request: CreateRequest) -> None:
    if request.job.payload.get("text") == "forbidden":
        raise Refused("not this text", code="note_refused")


@ext.guard("claim", job_type="NOTE_INDEX")
async def not_before_it_is_woken(tx: Tx, request: ClaimRequest) -> Defer | None:
    wanted = request.job.payload.get("text") != "later" or request.job.reason == "woken"
    return None if wanted else Defer(3600, "not woken yet")


@ext.effect("create", "complete", "fail", "reject", "cancel", "reap")
async def keep_books(tx: Tx, verb: str, job: Job) -> None:
    indexed.add(1, "effect")
    entry = "reserve" if verb == "create" else ENTRY.get(job.state)
    if entry is not None:
        await tx.run(ext.q.add_entry, job=job.id, entry=entry)


@ext.maintenance(every=60)
async def sweep(tx: Tx) -> None:
    indexed.add(1, "maintenance")
    await tx.run(ext.q.sweep)


@ext.check("ledger")
async def balanced(tx: Tx) -> Checked:
    return ok(f"{len(await tx.all(ext.q.entries))} entries")


@ext.health("entries")
async def how_many(tx: Tx) -> int:
    return len(await tx.all(ext.q.entries))


@ext.explain
async def booked(tx: Tx, job: Job) -> str:
    return f"{len(await tx.all(ext.q.entries_of, job=job.id))} entries in the ledger"


class NewNote(msgspec.Struct, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(max_length=100)]


class Note(msgspec.Struct):
    id: str
    entries: list[str] = []


READ, WRITE = ext.scope("read", "read notes"), ext.scope("write", "write notes")


@ext.route("POST", "/notes", scope=WRITE, about="Write a note.", body=NewNote, answers={201: Note})
async def write(request: Request) -> Note:
    indexed.add(1, "route")
    return Note((await request.enqueue(index, request.body.text)).id)


@ext.route("GET", "/notes/{note_id}", scope=READ, about="Read a note.", answers={200: Note}, refuses=(404,))
async def read(request: Request) -> Note:
    async with request.tx() as tx:
        entries = [row["entry"] for row in await tx.all(ext.q.entries_of, job=request.path["note_id"])]
    if not entries:
        raise NotFound("there is no such note", code="note_not_found")
    return Note(request.path["note_id"], entries)


@ext.route("POST", "/notes/{note_id}/wake", scope=WRITE, about="Index it now.", answers={204: None}, refuses=(404, 409))
async def wake(request: Request) -> None:
    await request.wake(request.path["note_id"])


@ext.route("GET", "/notes/{note_id}/events", scope=READ, answers={200: "text/event-stream", 204: None}, refuses=(404,))
async def follow(request: Request) -> Reply | Stream:
    return await request.job_events(request.path["note_id"])


FILE, BINARY = "/notes/{note_id}/file", "application/octet-stream"


@ext.route("PUT", FILE, scope=WRITE, about="Attach a file.", body=BINARY, body_max=2**24, answers={204: None})
async def attach(request: Request) -> None:
    async with ext.open_storage(request.settings.storage_url) as storage:
        await storage.put(request.path["note_id"], request.stream())


@ext.route("GET", FILE, scope=READ, about="The attached file.", answers={200: BINARY}, refuses=(404,))
async def attached(request: Request) -> Response:
    return stored(await ext.open_storage(request.settings.storage_url).get(request.path["note_id"]))


ext.mount("/notes-about", PlainTextResponse("notes"), scope=READ)


app = App(name="notes-app")
app.include(ext)
