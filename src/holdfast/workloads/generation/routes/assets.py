"""Routes of the library: search it, mark favorites, tag, download and delete."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from holdfast.errors import InvalidField, NotFound, ObjectNotFound
from holdfast.extend import Query, Request, Tx, ranged
from holdfast.workloads.generation import objects
from holdfast.workloads.generation.extension import READ, WRITE, ext
from holdfast.workloads.generation.jobs import delete as delete_objects
from holdfast.workloads.generation.library import like_pattern
from holdfast.workloads.generation.links import FILE, KEY_OF, SIGNED, Kind, links, signed_name, signer
from holdfast.workloads.generation.routes.cursors import ID, before_id
from holdfast.workloads.generation.users import user_of
from holdfast.workloads.generation.views import AssetPage, AssetView, TagList, TagView, library_views
from holdfast.workloads.generation.wanted import check_text

ASSET = "/assets/{asset_id}"
TAGS_MAX, TAG_CHARS_MAX, TAGS_SHOWN = 20, 50, 1000
SEARCH_CHARS_MAX = 200
CACHE_SECONDS = 3600
DOWNLOAD_SECONDS = 2 * objects.REQUEST_SECONDS * objects.RETRIES


class LibraryQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    search: Annotated[
        str,
        msgspec.Meta(
            max_length=SEARCH_CHARS_MAX,
            description="Words of the prompt, in their order; case and accents are ignored.",
        ),
    ] = ""
    tag: Annotated[str, msgspec.Meta(max_length=TAG_CHARS_MAX)] = ""
    favorite: Annotated[bool, msgspec.Meta(description="Only favorites.")] = False


class AssetChange(msgspec.Struct, forbid_unknown_fields=True):
    favorite: bool | None = None
    tags: Annotated[list[str] | None, msgspec.Meta(description="Replaces the tags that it has.")] = None


class SignedAssetQuery(msgspec.Struct):  # pages add parameters of their own
    token: str = ""


@ext.route(
    *("GET", "/assets"),
    scope=READ,
    about="Search your library, the newest first.",
    query=LibraryQuery,
    answers={200: AssetPage},
)
async def library(request: Request) -> AssetPage:
    query, tag = request.query, _tag(request.query.tag)
    check_text("search", query.search, SEARCH_CHARS_MAX)
    check_text("tag", query.tag, TAG_CHARS_MAX)
    asked: dict[str, Any] = {
        "tenant": request.caller.tenant,
        "user_id": user_of(request),
        "before": before_id(query.cursor),
        "limit": query.limit + 1,
        "search": like_pattern(query.search),
    }

    async def page(tx: Tx) -> tuple[list[Any], list[Any]]:
        if tag:
            rows = await tx.all(ext.q.library_of_tag, **asked, tag=tag, only_favorites=query.favorite)
        else:
            rows = await tx.all(ext.q.library_of_favorites if query.favorite else ext.q.library, **asked)
        return rows, await tx.all(ext.q.tags_of, ids=[row["id"] for row in rows])

    rows, tags = await request.read(page)
    shown = rows[: query.limit]
    cursor = shown[-1]["id"] if len(rows) > len(shown) else None
    return AssetPage(await library_views(shown, tags, await links(request)), cursor)


@ext.route("GET", "/assets/tags", scope=READ, about="List the tags of your library.", answers={200: TagList})
async def tags(request: Request) -> TagList:
    asked: dict[str, Any] = {"tenant": request.caller.tenant, "user_id": user_of(request), "limit": TAGS_SHOWN}
    rows = await request.read(lambda tx: tx.all(ext.q.tags, **asked))
    return TagList([TagView(row["tag"], row["assets"]) for row in rows])


@ext.route(
    *("GET", ASSET), scope=READ, about="Read an image of your library.", answers={200: AssetView}, refuses=(404,)
)
async def read(request: Request) -> AssetView:
    async def one(tx: Tx) -> tuple[Any, list[Any]]:
        row = await _own(tx, request, ext.q.asset)
        return row, await tx.all(ext.q.tags_of, ids=[row["id"]])

    row, tagged = await request.read(one)
    return (await library_views([row], tagged, await links(request)))[0]


async def _own(tx: Tx, request: Request, query: Query) -> Any:
    id_, row = request.path["asset_id"], None
    if ID.fullmatch(id_):
        row = await tx.one(query, tenant=request.caller.tenant, user_id=user_of(request), id=id_)
    if row is None:
        raise _not_found()
    return row


def _not_found() -> NotFound:
    return NotFound("there is no such image", code="asset_not_found")


@ext.route(
    *("PATCH", ASSET),
    scope=WRITE,
    about="Mark an image as a favorite, or tag it.",
    body=AssetChange,
    names_field=True,
    answers={200: AssetView},
    refuses=(404,),
)
async def change(request: Request) -> AssetView:
    wanted = request.body
    given = None if wanted.tags is None else _tags(wanted.tags)
    async with request.tx() as tx:
        row = await _own(tx, request, ext.q.hold_asset)
        if wanted.favorite is not None:
            await tx.run(ext.q.set_favorite, id=row["id"], favorite=wanted.favorite)
        if given is not None:
            await tx.run(ext.q.clear_tags, id=row["id"])
            mine = {"tenant": request.caller.tenant, "user_id": user_of(request), "id": row["id"]}
            await tx.run(ext.q.put_tags, given=[(tag,) for tag in given], **mine)
    return await read(request)


def _tags(given: list[str]) -> list[str]:
    tags = sorted({tag for text in given if (tag := _tag(text))})
    if len(tags) > TAGS_MAX:
        raise InvalidField(f"an image has at most {TAGS_MAX} tags, got {len(tags)}", field="tags")
    for tag in tags:
        if len(tag) > TAG_CHARS_MAX or not tag.isprintable():
            raise InvalidField(f"a tag is at most {TAG_CHARS_MAX} printable characters", field="tags")
    return tags


def _tag(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


@ext.route(
    *("DELETE", ASSET),
    scope=WRITE,
    about="Delete an image. Its files are deleted by a job.",
    answers={204: None},
    refuses=(404,),
)
async def delete(request: Request) -> None:
    async with request.tx() as tx:
        row = await _own(tx, request, ext.q.hold_asset)
        id_ = row["id"]
        await tx.run(ext.q.clear_tags, id=id_)
        await tx.run(ext.q.delete_asset, id=id_)
        keys = [row["storage_key"], row["thumbnail_key"] or objects.thumbnail_key(id_)]
        await request.enqueue(delete_objects, keys)


@ext.route(
    *("GET", FILE),
    scope=READ,
    about="Download an image (`file`) or its `thumbnail`.",
    answers={200: "image/*"},
    ranges=True,
    seconds=DOWNLOAD_SECONDS,
    refuses=(404,),
)
async def download(request: Request) -> Response:
    row = await request.read(lambda tx: _own(tx, request, ext.q.asset))
    return await _served(row, request.path["kind"], CACHE_SECONDS)


@ext.route(
    *("GET", SIGNED),
    scope=None,
    about="Download an image or its thumbnail by its signed URL.",
    query=SignedAssetQuery,
    answers={200: "image/*"},
    ranges=True,
    seconds=DOWNLOAD_SECONDS,
    refuses=(403, 404),
)
async def signed(request: Request) -> Response:
    id_, kind = request.path["asset_id"], request.path["kind"]
    (await signer(request)).verify(request.query.token, "GET", signed_name(id_, kind))
    row = await request.read(lambda tx: tx.one(ext.q.any_asset, id=id_))
    if row is None:
        raise _not_found()
    return await _served(row, kind, min(CACHE_SECONDS, ext.settings.url_seconds))


async def _served(row: Any, kind: Kind | str, seconds: int) -> Response:
    key = row[KEY_OF[kind]] if kind in KEY_OF else None
    try:
        found = None if key is None else await objects.storage().get(key)
    except ObjectNotFound:
        found = None
    if found is None:
        raise NotFound(f"the image has no {kind[:80]!r}", code="file_not_found")
    is_thumbnail = kind == "thumbnail"
    media_type, etag = (
        ("image/webp", f"t{row['sha256'][:31]}") if is_thumbnail else (row["content_type"], row["sha256"][:32])
    )
    headers = {"cache-control": f"private, max-age={seconds}", "x-content-type-options": "nosniff"}
    return ranged(found.part, found.info.size, etag=etag, media_type=media_type, headers=headers)
