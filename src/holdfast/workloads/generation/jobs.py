"""The job types: run a generation, make a thumbnail, delete files, cancel predictions, sweep the storage."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import msgspec

from holdfast import Context, Snooze
from holdfast.extend import Tx
from holdfast.workloads.generation import objects
from holdfast.workloads.generation.execution import generate
from holdfast.workloads.generation.extension import OPERATE, WRITE, ext
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.hooks import ABANDON, RUN, prompt_guard
from holdfast.workloads.generation.moderation import Moderator, load_moderator
from holdfast.workloads.generation.outcomes import TREATED, reported
from holdfast.workloads.generation.picture import thumbnail as thumbnail_of
from holdfast.workloads.generation.providers import open_provider
from holdfast.workloads.generation.wanted import SIDE, Wanted

QUEUE = "generation"
MEMORY_MB = 512
SWEEP_SECONDS = 3600.0
LEFTOVER_SECONDS = LATER_SECONDS = 86_400.0
DELETED_AT_ONCE = 1000


@ext.job(
    RUN, queue=QUEUE, lifecycle="generation", scope=WRITE, caller_field="user", errors=TREATED, needs_database=True
)
async def run(
    ctx: Context,
    user: str,
    prompt: str,
    negative_prompt: str | None = None,
    width: int = SIDE,
    height: int = SIDE,
    count: int = 1,
    seed: int | None = None,
    style: str | None = None,
    provider: str | None = None,
) -> dict[str, Any]:
    """Generate `count` images for a user, who pays with credits."""
    picked = {"negative_prompt": negative_prompt, "width": width, "height": height, "count": count}
    payload = {"user": user, "prompt": prompt, **picked, "seed": seed, "style": style, "provider": provider}
    with reported():
        return await generate(ctx, Wanted.stored(payload), _required_moderator())


def _required_moderator() -> Moderator:
    """No image is shown that was not moderated."""
    try:
        return moderator()
    except Exception as error:  # of a plug-in
        message = f"{type(error).__name__}: {error}"
        raise ProviderError("moderator_unavailable", message, "transient") from error


def moderator() -> Moderator:
    return _moderator(msgspec.json.encode([ext.settings.moderator, ext.settings.blocked_images_file]))


@cache
def _moderator(settings: bytes) -> Moderator:
    """Kept while the settings stay, since it reads files."""
    refuses = lambda *texts: prompt_guard().refuses(*texts)  # noqa: E731
    return load_moderator(ext.settings, refuses=refuses, monotonic=ext.app.clock.monotonic)


@ext.job(
    "GENERATION_THUMBNAIL",
    queue=QUEUE,
    isolation="process",
    memory_mb=MEMORY_MB,
    scope=OPERATE,
    max_attempts=8,
    needs_database=True,
)
async def thumbnail(ctx: Context, asset: str) -> bool:
    """Make the thumbnail of an asset. False: the asset was deleted."""
    key = objects.thumbnail_key(asset)
    with reported():
        async with ctx.transaction() as tx:
            row = await tx.one(ext.q.any_asset, id=asset)
        if row is not None and row["tenant"] == ctx.tenant:
            data = thumbnail_of(await objects.storage().read(row["storage_key"]))
            await objects.storage().put(key, data, content_type="image/webp")
        async with ctx.transaction() as tx:
            exists = await tx.one(ext.q.set_thumbnail, id=asset, tenant=ctx.tenant, thumbnail_key=key) is not None
        if not exists and (row is None or row["tenant"] == ctx.tenant):
            await objects.storage().delete(key)
    return exists


@ext.job("GENERATION_DELETE", queue=QUEUE, scope=OPERATE, max_attempts=20, errors=TREATED, needs_database=True)
async def delete(ctx: Context, keys: list[str]) -> int:
    """Delete objects, except those that an asset has. Those of an unfinished job wait until it has ended."""
    async with ctx.transaction() as tx:
        unneeded = [key for key in keys if not await objects.is_needed(tx, key)]
        waiting = [key for key in keys if await objects.is_of_unfinished_job(tx, key)]
    with reported():
        for first in range(0, len(unneeded), DELETED_AT_ONCE):
            await objects.storage().delete(*unneeded[first : first + DELETED_AT_ONCE])
    if waiting:
        raise Snooze(LATER_SECONDS)
    return len(unneeded)


@ext.job(ABANDON, queue=QUEUE, scope=OPERATE)
async def abandon(ctx: Context, provider: str, tasks: list[str]) -> None:
    """Cancel predictions of jobs that have ended without their images, as far as the provider does that."""
    if provider not in ext.settings.providers:
        return
    opened = open_provider(provider, ext.settings)
    try:
        await asyncio.gather(*map(opened.cancel, tasks))
    finally:
        await opened.close()


@ext.job(
    "GENERATION_SWEEP",
    queue=QUEUE,
    max_attempts=20,
    idempotency="until_failed",
    concurrency=1,
    scope=OPERATE,
    needs_database=True,
)
async def sweep(ctx: Context) -> int:
    """Delete what executions have left in the storage that crashed, or whose images were not published."""

    async def is_recorded(key: str) -> bool:
        async with ctx.transaction() as tx:
            if await objects.is_of_unfinished_job(tx, key):  # it may end without this image, after the sweep forgot it
                later = delete.options(delay=LATER_SECONDS, idempotency_key=f"generation-leftover {key}")
                await tx.enqueue(later, [key])
            return await objects.is_needed(tx, key)

    with reported():
        return await objects.storage().sweep(LEFTOVER_SECONDS, recorded=is_recorded)


@ext.maintenance(every=SWEEP_SECONDS)
async def start_sweep(tx: Tx) -> None:
    hour = ext.app.clock.now().strftime("%Y-%m-%dT%H")
    await ext.enqueue(tx, sweep.options(idempotency_key=f"generation-sweep {hour}"))
