"""Routes of generations: request one, read it, follow it, cancel it."""

from __future__ import annotations

import hmac
from typing import Annotated, Any, Literal

import msgspec

from holdfast.errors import Conflict, KeyReused, NotFound
from holdfast.extend import Created, Header, Reply, Request, Tx
from holdfast.workloads.generation.classification import refused_by_classifier
from holdfast.workloads.generation.extension import READ, WRITE, ext
from holdfast.workloads.generation.hooks import SAFE_BLOCK, prompt_rejected, refused_prompt
from holdfast.workloads.generation.jobs import run
from holdfast.workloads.generation.links import links
from holdfast.workloads.generation.routes.cursors import ID, before_id
from holdfast.workloads.generation.users import user_of
from holdfast.workloads.generation.views import AcceptedGeneration, GenerationPage, GenerationView, generation_views
from holdfast.workloads.generation.waiting import with_queue_position
from holdfast.workloads.generation.wanted import (
    COUNT_MAX,
    PROMPT_CHARS_MAX,
    SEED_MAX,
    SIDE,
    SIDE_MAX,
    SIDE_MIN,
    Wanted,
    check_storable,
)

GENERATION = "/generations/{generation_id}"
KEY = "Idempotency-Key"
FINAL = ("completed", "rejected", "dead_letter")

Seed = Annotated[int, msgspec.Meta(ge=0, le=SEED_MAX)]
Side = Annotated[int, msgspec.Meta(ge=SIDE_MIN, le=SIDE_MAX, description="In pixels.")]


class NewGeneration(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    prompt: Annotated[str, msgspec.Meta(min_length=1, max_length=PROMPT_CHARS_MAX)]
    negative_prompt: Annotated[str | None, msgspec.Meta(description="What the image must not show.")] = None
    width: Side = SIDE
    height: Side = SIDE
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX, description="Number of images.")] = 1
    seed: Annotated[Seed | None, msgspec.Meta(description="The same seed gives similar images; else it is random.")] = (
        None
    )
    style: Annotated[str | None, msgspec.Meta(description="Such as `watercolor`.")] = None
    provider: Annotated[str | None, msgspec.Meta(description="One that is configured; without it the default.")] = None


PAYLOAD = NewGeneration.__struct_fields__


class GenerationQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    status: Literal["queued", "running", "completed", "failed", "rejected", "dead_letter"] | None = None


@ext.route(
    *("POST", "/generations"),
    scope=WRITE,
    about="Generate images. The same request within a minute is answered with the same generation.",
    body=NewGeneration,
    names_field=True,
    headers=(Header(KEY, "Requests with the same key make one generation.", "poster-4711"),),
    answers={202: AcceptedGeneration},
    location=True,
    refuses=(402, 429),
)
async def create(request: Request) -> Reply:
    body = request.body
    payload = {name: value for name in PAYLOAD if (value := getattr(body, name)) is not None}
    check_storable(payload)
    payload = {"user": user_of(request), "provider": ext.settings.provider, **payload}
    if ext.settings.classifier:
        await _classify(request, Wanted.of(payload))
    made = await _enqueued(request, payload)
    accepted = AcceptedGeneration(made.id, made.id, "queued", ext.settings.cost * body.count)
    if made.existed:
        row = await request.read(lambda tx: _request_of(tx, made.id))
        if row is not None:
            accepted = AcceptedGeneration(row["id"], row["job_id"], row["status"], row["credits"])
    return Reply(202, accepted, ((b"location", f"/generations/{accepted.generation_id}".encode()),))


async def _request_of(tx: Tx, job_id: str) -> Any:
    """A request that was redriven has the id of its first job, and another job."""
    row = await tx.one(ext.q.request_of_job, job_id=job_id)
    return await tx.one(ext.q.request_by_id, id=job_id) if row is None else row


async def _classify(request: Request, wanted: Wanted) -> None:
    if refused_prompt(wanted) is not None:
        return  # the guard of the job says so
    category = await refused_by_classifier(wanted.guarded_text)
    if category is not None:
        async with request.tx() as tx:
            await ext.audit(tx, SAFE_BLOCK, wanted.user, stage="request", category=f"classifier: {category}")
        raise prompt_rejected(wanted.user, category)


async def _enqueued(request: Request, payload: dict[str, Any]) -> Created:
    key = request.idempotency_key
    if key is None:
        return await request.enqueue(run, **payload)
    own = await _own_key(request, payload["user"], key)
    try:
        return await request.enqueue(run.options(idempotency_key=own), **payload)
    except KeyReused:
        raise KeyReused("this Idempotency-Key was used for another request; use a new one") from None


async def _own_key(request: Request, user: str, key: str) -> str:
    """Of this user: another user cannot use it first, because it cannot be computed without the secret."""
    digest = hmac.digest(await request.secret("keys"), msgspec.json.encode([user, key]), "sha256")
    return f"generation-{digest.hex()}"


@ext.route(
    *("GET", "/generations"),
    scope=READ,
    about="List your generations, the newest first.",
    query=GenerationQuery,
    answers={200: GenerationPage},
)
async def listed(request: Request) -> GenerationPage:
    query = request.query
    asked: dict[str, Any] = {
        "tenant": request.caller.tenant,
        "user_id": user_of(request),
        "before": before_id(query.cursor),
        "limit": query.limit + 1,
    }

    async def page(tx: Tx) -> tuple[list[Any], list[Any]]:
        if query.status is None:
            rows = await tx.all(ext.q.page, **asked)
        else:
            rows = await tx.all(ext.q.page_of_status, **asked, status=query.status)
        return rows, await tx.all(ext.q.assets_of, ids=[row["id"] for row in rows[: query.limit]])

    rows, assets = await request.read(page)
    shown = rows[: query.limit]
    cursor = shown[-1]["id"] if len(rows) > len(shown) else None
    return GenerationPage(await generation_views(shown, assets, await links(request)), cursor)


@ext.route(
    *("GET", GENERATION),
    scope=READ,
    about="Read a generation: its status, its images and their signed URLs.",
    answers={200: GenerationView},
    refuses=(404,),
)
async def read(request: Request) -> GenerationView:
    async def one(tx: Tx) -> tuple[Any, list[Any]]:
        row = await _own(tx, request)
        return row, await tx.all(ext.q.assets_of, ids=[row["id"]])

    row, assets = await request.read(one)
    [view] = await generation_views([row], assets, await links(request))
    return await with_queue_position(request, row, view)


async def _own(tx: Tx, request: Request) -> Any:
    """Of this user: to others it does not exist."""
    id_, row = request.path["generation_id"], None
    if ID.fullmatch(id_):
        row = await tx.one(ext.q.request, tenant=request.caller.tenant, user_id=user_of(request), id=id_)
    if row is None:
        raise NotFound("there is no such generation", code="generation_not_found")
    return row


@ext.route(
    *("GET", f"{GENERATION}/events"),
    scope=READ,
    about="Follow a generation: server-sent events of its job until it ends.",
    answers={200: "text/event-stream", 204: None},
    refuses=(404,),
)
async def events(request: Request) -> Any:
    row = await request.read(lambda tx: _own(tx, request))
    return await request.job_events(row["job_id"])


@ext.route(
    *("POST", f"{GENERATION}/cancel"),
    scope=WRITE,
    about="Cancel a generation: reserved credits are released.",
    answers={202: GenerationView},
    refuses=(404, 409),
)
async def cancel(request: Request) -> Reply:
    row = await request.read(lambda tx: _own(tx, request))
    if row["status"] in FINAL and row["error_code"] != "canceled":
        raise Conflict(f"the generation is {row['status']}: there is nothing to cancel", code="already_final")
    if row["status"] not in FINAL:
        await request.cancel(row["job_id"])
    return Reply(202, await read(request))
