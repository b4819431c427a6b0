"""The HTTP API of the image service."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response

from holdfast.errors import Conflict, Invalid, KeyReused, NotAcceptable, NotFound, ObjectNotFound
from holdfast.extend import Header, Reply, Request, Tx, ranged
from holdfast.workloads.images import objects
from holdfast.workloads.images.extension import READ, WRITE, ext
from holdfast.workloads.images.jobs import CONTROL_PRIORITY, cancel, delete, process, reprocess
from holdfast.workloads.images.negotiation import best_format
from holdfast.workloads.images.upload import Upload, discard, receive, sent_twice
from holdfast.workloads.images.variants import SUFFIXES, Variant, read_variants, variants_json
from holdfast.workloads.images.views import (
    PATH,
    SIGNED,
    AcceptedImage,
    ControlJob,
    ImagePage,
    ImageView,
    image_views,
    media_type_of,
    signed_name,
    signer,
    urls,
)

IMAGE = "/images/{image_id}"
KEY = "Idempotency-Key"
ENVELOPE_BYTES = 1 << 20  # of a form around its file
LAST = "g"  # behind every id, in every collation
ACCEPT = Header("Accept", "For a name without a suffix: the formats that the client can show.", "image/avif,image/webp")
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A download asks for the object; if that is missing, for the mark of the storage, and then for the bucket.
DOWNLOAD_SECONDS = 3 * objects.OPERATION_SECONDS + 10.0  # those of its queries
CACHE_SECONDS = 3600
CDN_CACHE_SECONDS = 86_400  # also of a response that was on its way while the CDN was purged


class VariantsQuery(msgspec.Struct, forbid_unknown_fields=True):
    variants: Annotated[
        str | None, msgspec.Meta(description="A JSON list; none: the default variants, or those it has.")
    ] = None


class UploadForm(msgspec.Struct):
    file: Annotated[bytes, msgspec.Meta(description="The image.")]
    variants: Annotated[str | None, msgspec.Meta(description="A JSON list, if it is not in the query.")] = None


class ImageQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    status: Literal["queued", "processing", "completed", "failed_retryable", "failed"] | None = None


class SignedQuery(msgspec.Struct):  # pages add parameters of their own
    token: str = ""


class Reprocess(msgspec.Struct, forbid_unknown_fields=True):
    variants: Annotated[Any, msgspec.Meta(description="A list, as in `POST /images`; none: those it has.")] = None


@ext.route(
    *("POST", "/images"),
    scope=WRITE,
    about="Upload an image: the bytes, or a form with a field `file`.",
    body="*/*",
    body_max=lambda: ext.settings.max_bytes + ENVELOPE_BYTES,
    too_large="image_too_large",
    form=UploadForm,
    query=VariantsQuery,
    headers=(Header(KEY, "Requests with the same key create one image.", "photo-4711"),),
    answers={202: AcceptedImage},
    location=True,
    refuses=(409, 413, 415),
)
async def upload(request: Request) -> Reply:
    key = request.idempotency_key
    asked = request.query.variants
    variants = None if asked is None else read_variants(asked)
    received = await receive(request, ext.app.ids.job_ids(ext.app.clock.now(), 1)[0])
    try:
        if received.variants is not None:
            if variants is not None:
                raise sent_twice("variants", "is in the query and in the form")
            variants = read_variants(received.variants)
        if variants is None:
            variants = ext.settings.default_variants()
        accepted = await _record(request, received, variants, key)
    except Exception:
        await discard(request, received)
        raise
    return _accepted(accepted)


def _accepted(accepted: AcceptedImage) -> Reply:
    return Reply(202, accepted, ((b"location", f"/images/{accepted.image_id}".encode()),))


async def _record(request: Request, upload: Upload, variants: list[Variant], key: str | None) -> AcceptedImage:
    """The image and its job in one commit. A request whose key was used is answered with what the first one made."""
    assert upload.found is not None  # noqa: S101
    wanted = variants_json(variants)
    digest = hashlib.sha256(f"{upload.sha256} {wanted}".encode()).hexdigest()
    tenant, lost = request.caller.tenant, await _lost_original(request, upload)
    async with request.tx() as tx:
        [original] = await tx.all(ext.q.add_original, tenant=tenant, sha256=upload.sha256, storage_key=upload.key)
        row = {
            "id": upload.image_id,
            "tenant": tenant,
            "sha256": upload.sha256,
            "content_type": upload.found.media_type,
            "bytes": upload.size,
            "width": upload.found.width,
            "height": upload.found.height,
            "frames": upload.found.frames,
            "wanted": wanted,
            "idempotency_key": key,
            "request_digest": digest,
        }
        if await tx.one(ext.q.add_image, **row) is None:
            await tx.one(ext.q.leave_original, tenant=tenant, sha256=upload.sha256)
            await tx.run(ext.q.delete_original, tenant=tenant, sha256=upload.sha256)
            await tx.run(ext.q.discard, storage_key=upload.key)
            return await _repeated(tx, tenant, key, digest)
        if original["storage_key"] == lost:
            await tx.run(ext.q.replace_original, tenant=tenant, sha256=upload.sha256, storage_key=upload.key)
            await tx.run(ext.q.add_garbage, storage_key=lost, job_id=None, seconds=objects.LEFTOVER_SECONDS)
        is_needed = original["storage_key"] in (upload.key, lost)
        await (tx.run(ext.q.keep, keys=[upload.key]) if is_needed else tx.run(ext.q.discard, storage_key=upload.key))
        job = await request.enqueue(process, upload.image_id)
    return AcceptedImage(upload.image_id, job.id, "queued")


async def _lost_original(request: Request, upload: Upload) -> str | None:
    """The key under which the tenant should have the same bytes already, if they are missing there."""

    async def known(tx: Tx) -> tuple[Any, str | None]:
        original = await tx.one(ext.q.original, tenant=request.caller.tenant, sha256=upload.sha256)
        return original, await objects.mark_of(tx)

    original, mark = await request.read(known)
    if original is None or await objects.storage().exists(original["storage_key"]):
        return None
    await objects.require_mark(mark)
    return str(original["storage_key"])


async def _repeated(tx: Tx, tenant: str, key: str | None, digest: str) -> AcceptedImage:
    image = await tx.one(ext.q.image_of_key, tenant=tenant, idempotency_key=key)
    if image is None:
        raise Conflict(f"the image that was made with this {KEY} is being deleted", code="image_deleted")
    if image["request_digest"] != digest:
        raise KeyReused(f"this {KEY} was used for another image or other variants; use a new one")
    return AcceptedImage(image["id"], image["job_id"], image["status"])


@ext.route(
    *("GET", "/images"),
    scope=READ,
    about="List the images, the newest first.",
    query=ImageQuery,
    answers={200: ImagePage},
)
async def listed(request: Request) -> ImagePage:
    query, links = request.query, await urls(request)
    if query.cursor is not None and not ID.fullmatch(query.cursor):
        raise Invalid("the cursor is not from a page of this list: use `nextCursor` as it is", code="invalid_cursor")
    asked: dict[str, Any] = {"tenant": request.caller.tenant, "before": query.cursor or LAST, "limit": query.limit + 1}

    async def page(tx: Tx) -> tuple[list[Any], list[Any]]:
        if query.status is None:
            images = await tx.all(ext.q.page, **asked)
        else:
            images = await tx.all(ext.q.page_of_status, **asked, status=query.status)
        return images, await tx.all(ext.q.variants, ids=[image["id"] for image in images[: query.limit]])

    images, variants = await request.read(page)
    shown = images[: query.limit]
    cursor = shown[-1]["id"] if len(images) > len(shown) else None
    return ImagePage(await image_views(shown, variants, links), cursor)


@ext.route(
    *("GET", IMAGE),
    scope=READ,
    about="Read an image: its status, its variants and their signed URLs.",
    answers={200: ImageView},
    refuses=(404,),
)
async def read(request: Request) -> ImageView:
    links = await urls(request)

    async def one(tx: Tx) -> tuple[Any, list[Any]]:
        image = await _image(tx, request)
        return image, await tx.all(ext.q.variants, ids=[image["id"]])

    image, variants = await request.read(one)
    return (await image_views([image], variants, links))[0]


async def _image(tx: Tx, request: Request) -> Any:
    image_id = request.path["image_id"]
    is_id = ID.fullmatch(image_id) is not None
    image = await tx.one(ext.q.image, tenant=request.caller.tenant, id=image_id) if is_id else None
    if image is None:
        raise NotFound("there is no such image", code="image_not_found")
    return image


@ext.route(
    *("GET", PATH),
    scope=READ,
    about="Download a variant: `w320.webp`, or `w320` for the best format that the client accepts.",
    headers=(ACCEPT,),
    answers={200: "image/*"},
    ranges=True,
    seconds=DOWNLOAD_SECONDS,
    refuses=(404, 406),
)
async def variant(request: Request) -> Response:
    async def one(tx: Tx) -> tuple[Any, bool]:
        image, name = await _image(tx, request), request.path["variant"]
        rows = {row["name"]: row for row in await tx.all(ext.q.variants, ids=[image["id"]])}
        if name in rows:
            return rows[name], False
        return _negotiated(rows, name, request.headers.get("accept", "")), True

    row, negotiated = await request.read(one)
    return await _served(request, row, _cached(), {"vary": "Accept"} if negotiated else {})


def _negotiated(rows: dict[str, Any], name: str, accept: str) -> Any:
    offered = {SUFFIXES[suffix]: rows[f"{name}.{suffix}"] for suffix in SUFFIXES if f"{name}.{suffix}" in rows}
    if not offered:
        raise NotFound(f"the image has no variant {name[:80]!r}; it has {', '.join(rows) or 'none'}", code="no_variant")
    row = best_format(accept, offered)
    if row is None:
        raise NotAcceptable(f"variant {name!r} exists as {', '.join(offered)} only")
    return row


def _cached() -> str:
    """A CDN is purged when a variant is replaced; browsers are not."""
    if ext.settings.has_cdn:
        return f"public, max-age={CACHE_SECONDS}, s-maxage={CDN_CACHE_SECONDS}"
    return f"private, max-age={CACHE_SECONDS}"


async def _served(request: Request, row: Any, cached: str, headers: dict[str, str]) -> Response:
    try:
        download = await objects.storage().get(row["storage_key"])
    except ObjectNotFound:  # deleted since the row was read, or lost
        await objects.require_mark(await request.read(objects.mark_of))
        raise NotFound("the file of this variant does not exist any more", code="no_variant") from None
    etag, media_type = row["sha256"][:32], media_type_of(row)
    headers = {"cache-control": cached, "x-content-type-options": "nosniff", **headers}
    return ranged(download.part, download.info.size, etag=etag, media_type=media_type, headers=headers)


@ext.route(
    *("GET", SIGNED),
    scope=None,
    about="Download a variant by its signed URL.",
    query=SignedQuery,
    answers={200: "image/*"},
    ranges=True,
    seconds=DOWNLOAD_SECONDS,
    refuses=(403, 404),
)
async def signed(request: Request) -> Response:
    image_id, name = request.path["image_id"], request.path["variant"]
    (await signer(request)).verify(request.query.token, "GET", signed_name({"image_id": image_id, "name": name}))
    row = await request.read(lambda tx: tx.one(ext.q.shown_variant, image_id=image_id, name=name))
    if row is None:
        raise NotFound("this variant was deleted", code="no_variant")
    return await _served(request, row, f"private, max-age={min(CACHE_SECONDS, ext.settings.url_seconds)}", {})


@ext.route(
    *("POST", f"{IMAGE}/reprocess"),
    scope=WRITE,
    about="Make other variants, or the missing ones again: only the difference is made.",
    body=Reprocess,
    query=VariantsQuery,
    headers=(Header(KEY, "Requests with the same key create one job.", "photo-4711-again"),),
    answers={202: AcceptedImage},
    location=True,
    refuses=(404, 409),
)
async def start_reprocess(request: Request) -> Reply:
    given, asked = request.body.variants, request.query.variants
    if given is not None and asked is not None:
        raise sent_twice("variants", "is in the query and in the body")
    text = asked if given is None else msgspec.json.encode(given)
    wanted = None if text is None else read_variants(text)
    async with request.tx() as tx:
        image = await _image(tx, request)
        job = await request.enqueue(reprocess.options(idempotency_key=request.idempotency_key), image["id"], wanted)
        image = await _image(tx, request)
    return _accepted(AcceptedImage(image["id"], job.id, image["status"]))


@ext.route(
    *("POST", f"{IMAGE}/cancel"),
    scope=WRITE,
    about="Cancel the processing of an image, by a control job.",
    answers={202: ControlJob},
    location=True,
    refuses=(404, 409),
)
async def start_cancel(request: Request) -> Reply:
    async with request.tx() as tx:
        image = await _image(tx, request)
        if image["status"] in ("completed", "failed") and image["error_code"] != "canceled":
            raise Conflict(f"the image is {image['status']}: there is nothing to cancel", code="already_final")
        job = await request.enqueue(cancel.options(priority=CONTROL_PRIORITY), image["id"], image["job_id"])
    return _control(job.id)


@ext.route(
    *("DELETE", IMAGE),
    scope=WRITE,
    about="Delete an image, its variants and their copies in the CDN, by a control job.",
    answers={202: ControlJob},
    location=True,
    refuses=(404,),
)
async def start_delete(request: Request) -> Reply:
    async with request.tx() as tx:
        image = await _image(tx, request)
        job = await request.enqueue(delete.options(priority=CONTROL_PRIORITY), image["id"])
    return _control(job.id)


def _control(job_id: str) -> Reply:
    return Reply(202, ControlJob(job_id), ((b"location", f"/jobs/{job_id}".encode()),))
