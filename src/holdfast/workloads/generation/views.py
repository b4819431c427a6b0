"""What the HTTP API shows of generations, assets and credits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from holdfast.workloads.generation.links import Links


def _about(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class AcceptedGeneration(msgspec.Struct, rename="camel"):
    generation_id: str
    job_id: str
    status: str
    credits_reserved: int


class GenerationError(msgspec.Struct):
    code: str
    message: str


class AssetView(msgspec.Struct, rename="camel", omit_defaults=True):
    asset_id: str
    generation_id: str
    url: Annotated[str, _about("Signed: it needs no key, and expires.")]
    width: int
    height: int
    content_type: str
    sha256: str
    bytes: int
    prompt: str
    seed: int
    created_at: datetime
    favorite: Annotated[bool | None, _about("In the library only.")] = None
    tags: Annotated[list[str] | None, _about("In the library only.")] = None
    thumbnail_url: Annotated[str | None, _about("Signed. Missing until the thumbnail is made.")] = None


class GenerationView(msgspec.Struct, rename="camel", omit_defaults=True):
    generation_id: str
    job_id: Annotated[str, _about("The newest job that works on it.")]
    status: Annotated[
        str, _about("`queued`, `running`, `completed`, `failed` (a retry is due), `rejected` or `dead_letter`.")
    ]
    prompt: str
    seed: Annotated[int, _about("Of the first image; the others have the next ones.")]
    width: int
    height: int
    count: int
    provider: str
    credits_reserved: int
    credits_charged: int
    retry_count: int
    created_at: datetime
    updated_at: datetime
    assets: list[AssetView]
    negative_prompt: str | None = None
    style: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result_url: Annotated[str | None, _about("Of the first image.")] = None
    queue_position: Annotated[
        int | None, _about("While it is queued: 1 is the next one. Missing if 1000 or more are before it.")
    ] = None
    eta_seconds: Annotated[
        float | None,
        _about("While it is queued, from the durations of the last generations. Missing without a `queuePosition`."),
    ] = None
    error: GenerationError | None = None


class GenerationPage(msgspec.Struct, rename="camel"):
    generations: list[GenerationView]
    next_cursor: str | None


class AssetPage(msgspec.Struct, rename="camel"):
    assets: list[AssetView]
    next_cursor: str | None


class TagView(msgspec.Struct):
    tag: str
    assets: int


class TagList(msgspec.Struct):
    tags: list[TagView]


class CreditsView(msgspec.Struct):
    balance: int
    reserved: int
    available: int


class EntryView(msgspec.Struct, rename="camel"):
    entry_id: str
    kind: Annotated[str, _about("`grant`, `reserve`, `commit`, `release` or `forfeit`.")]
    amount: int
    job_id: str | None
    at: datetime
    reason: Annotated[str | None, _about("Of a grant.")] = None


class StatementPage(msgspec.Struct, rename="camel"):
    entries: list[EntryView]
    next_cursor: str | None


class Granted(msgspec.Struct, rename="camel"):
    entry_id: str
    balance: int


class ProviderCost(msgspec.Struct):
    provider: str
    images: int
    micros: Annotated[int, _about("In millionths of your currency.")]


class Costs(msgspec.Struct):
    costs: list[ProviderCost]


def entry_id(seq: int) -> str:
    return str(seq)


def entry_view(row: Any) -> EntryView:
    more = {name: row[name] for name in ("kind", "amount", "job_id", "at", "reason")}
    return EntryView(entry_id=entry_id(row["seq"]), **more)


async def generation_views(rows: list[Any], assets: list[Any], links: Links) -> list[GenerationView]:
    by_request = defaultdict(list)
    for asset in assets:
        by_request[asset["request_id"]].append(asset)
    return [await _generation_view(row, by_request[row["id"]], links) for row in rows]


async def _generation_view(row: Any, assets: list[Any], links: Links) -> GenerationView:
    shown = [await asset_view(asset, links) for asset in assets]
    same = ("job_id", "status", "prompt", "negative_prompt", "seed", "width", "height", "count", "style", "provider")
    times = ("retry_count", "created_at", "updated_at", "started_at", "finished_at")
    return GenerationView(
        generation_id=row["id"],
        **{name: row[name] for name in (*same, *times)},
        credits_reserved=row["credits"],
        credits_charged=row["charged"],
        assets=shown,
        result_url=shown[0].url if shown else None,
        error=GenerationError(row["error_code"], row["error_message"]) if row["error_code"] else None,
    )


async def library_views(rows: list[Any], tags: Iterable[Any], links: Links) -> list[AssetView]:
    by_asset = defaultdict(list)
    for row in tags:
        by_asset[row["asset_id"]].append(row["tag"])
    return [
        msgspec.structs.replace(await asset_view(row, links), favorite=bool(row["favorite"]), tags=by_asset[row["id"]])
        for row in rows
    ]


async def asset_view(row: Any, links: Links) -> AssetView:
    same = ("width", "height", "content_type", "sha256", "bytes", "prompt", "seed", "created_at")
    return AssetView(
        asset_id=row["id"],
        generation_id=row["request_id"],
        url=str(await links.of(row, "file")),
        thumbnail_url=await links.of(row, "thumbnail"),
        **{name: row[name] for name in same},
    )
