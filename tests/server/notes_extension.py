"""Routes of an extension, for the tests of what every extension's routes have in common."""

import asyncio
from typing import Annotated, Any

import msgspec

from holdfast.errors import Conflict, NotFound
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route
from holdfast.server.http.route import Reply
from holdfast.store.queries import Query

PUT = Query("put_note", "INSERT INTO holdfast_notes_note (id, owner, text) VALUES (:id, :owner, :text) RETURNING id")
ALL = Query("all_notes", "SELECT id, owner, text FROM holdfast_notes_note ORDER BY id")
TABLE = Query(
    "make_notes", "CREATE TABLE holdfast_notes_note (id text PRIMARY KEY, owner text NOT NULL, text text NOT NULL)"
)


class NewNote(msgspec.Struct, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(max_length=100)]


class Note(msgspec.Struct):
    note_id: str
    owner: str
    job_id: str | None = None


class NotesQuery(msgspec.Struct, forbid_unknown_fields=True):
    starred: bool = False


async def create(request: Request) -> Note:
    body: NewNote = request.body
    async with request.tx() as tx:
        await tx.one(PUT, id=body.text, owner=request.caller.subject, text=body.text)
        made = await request.enqueue("NOTE_INDEX", note_id=body.text)
        if body.text == "conflict":
            raise Conflict("there is one already")
        if body.text == "bug":
            raise ZeroDivisionError
        if body.text == "slow":
            await asyncio.Event().wait()
    return Note(body.text, request.caller.subject, made.id)


async def get(request: Request) -> Note:
    if request.path["note_id"] != "known":
        raise NotFound("no such note", code="note_not_found")
    return Note("known", request.settings["owner"])


async def every(request: Request) -> Reply:
    return Reply(200, {"starred": request.query.starred, "agent": request.headers["user-agent"]})


async def drop(request: Request) -> None:
    return None


def route(method: str, path: str, handler: Any, **words: Any) -> Any:
    return extension_route("notes", method, path, handler, **{"scope": "notes:read", **words})


ROUTES = (
    route(
        "POST",
        "/notes",
        create,
        scope="notes:write",
        about="Write a note.",
        body=NewNote,
        answers={201: Note},
        refuses=(409,),
    ),
    route("GET", "/notes", every, query=NotesQuery, answers={200: "application/json"}),
    route(
        "GET", "/notes/{note_id}", get, answers={200: Note}, refuses=(404,), settings=lambda: {"owner": "the settings"}
    ),
    route("DELETE", "/notes/{note_id}", drop, scope="notes:write", answers={204: None}),
)
