"""One execution of an image's job: read what is missing, make it, store it, and record it together with the end of the
job.

The objects are written to a folder that no other execution uses, and are visible only through the rows that the last
transaction writes. That transaction is fenced by the lease: an execution that lost its job publishes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast import Context
from holdfast.clock import turn
from holdfast.errors import ObjectNotFound
from holdfast.model import Part, PartStatus
from holdfast.workloads.images import objects
from holdfast.workloads.images.extension import ext
from holdfast.workloads.images.picture import Picture, Rendered
from holdfast.workloads.images.variants import MEDIA_TYPE, Variant, stored_variants

REPORT_SECONDS = 0.25  # finished variants are reported together that often


class Stored(msgspec.Struct, frozen=True):
    """A variant in the storage: kept as the data of its part until it is recorded."""

    key: str
    spec: str
    sha256: str
    width: int
    height: int
    bytes: int
    frames: int

    def row(self, image_id: str, name: str) -> tuple[Any, ...]:
        return (image_id, name, self.spec, self.key, self.sha256, self.width, self.height, self.bytes, self.frames)


class Plan(msgspec.Struct, frozen=True):
    """What the database says about the image when the execution starts."""

    original: str
    mark: str | None  # of the storage
    wanted: dict[str, Variant]
    recorded: dict[str, str]  # the spec of each variant that the image has
    lost: set[str]  # of these, the ones without their file
    known: bool  # its facts are recorded

    @property
    def missing(self) -> list[Variant]:
        has = {name: spec for name, spec in self.recorded.items() if name not in self.lost}
        return [variant for name, variant in self.wanted.items() if has.get(name) != spec_of(variant)]


def spec_of(variant: Variant) -> str:
    return msgspec.json.encode(variant).decode()


async def make_variants(ctx: Context, image_id: str) -> dict[str, Any]:
    """The result of the job. A job that is not the newest of its image has nothing to do."""
    folder = objects.attempt_folder(image_id, ctx.job_id, ctx.fence)
    plan = await _plan(ctx, image_id, folder)
    if plan is None:
        return {"image": image_id, "superseded": True}
    stored = await _finished(ctx, plan)
    todo = [variant for variant in plan.missing if variant.name not in stored]
    picture = None if plan.known and not todo else await _open(plan)
    if picture is not None:
        stored |= await _Making(ctx, folder, todo, len(plan.missing)).make(picture)
    return await _publish(ctx, image_id, folder, plan, stored, picture)


async def _plan(ctx: Context, image_id: str, folder: str) -> Plan | None:
    """Writes down the folder before anything is in it."""
    async with ctx.transaction() as tx:
        image = await tx.one(ext.q.image, tenant=ctx.tenant, id=image_id)
        if image is None or image["job_id"] != ctx.job_id:
            await tx.run(ext.q.discard_of_job, job_id=ctx.job_id)
            return None
        original = await tx.one(ext.q.original, tenant=ctx.tenant, sha256=image["sha256"])
        rows, mark = await tx.all(ext.q.variants, ids=[image_id]), await objects.mark_of(tx)
        await tx.run(ext.q.add_garbage, storage_key=folder, job_id=ctx.job_id, seconds=objects.LEFTOVER_SECONDS)
    wanted = {variant.name: variant for variant in stored_variants(image["wanted"])}
    recorded = {row["name"]: row["spec"] for row in rows}
    lost = await _lost([row for row in rows if row["name"] in wanted], mark)
    return Plan(original["storage_key"], mark, wanted, recorded, lost, image["dhash"] is not None)


async def _lost(rows: list[Any], mark: str | None) -> set[str]:
    """The variants whose files are not in the storage any more."""
    exist = await asyncio.gather(*(objects.storage().exists(row["storage_key"]) for row in rows))
    lost = {row["name"] for row, exists in zip(rows, exist, strict=True) if not exists}
    if lost:
        await objects.require_mark(mark)
    return lost


async def _finished(ctx: Context, plan: Plan) -> dict[str, Stored]:
    """What earlier executions of this job have made."""
    found = {}
    for name, part in (await ctx.finished_parts()).items():
        made = msgspec.convert(part.data, Stored) if part.data else None
        if made is not None and name in plan.wanted and made.spec == spec_of(plan.wanted[name]):
            found[name] = made
    return found


async def _open(plan: Plan) -> Picture:
    """For all wanted variants, also those that exist: so each has the same bytes, whichever execution makes it."""
    data = await _read(plan)
    return Picture.open(data, ext.settings.limits, largest=[*plan.wanted.values()])


async def _read(plan: Plan) -> bytes:
    try:
        return await objects.storage().read(plan.original)
    except ObjectNotFound:
        await objects.require_mark(plan.mark)
        return await objects.storage().read(plan.original)  # it may be there again


class _Making:
    """Makes variants one after the other; each is stored while the next one is made."""

    def __init__(self, ctx: Context, folder: str, todo: list[Variant], total: int) -> None:
        self._ctx, self._folder, self._todo, self._total = ctx, folder, todo, total
        self._announced = False
        self._stored: dict[str, Stored] = {}
        self._unreported: list[Part] = []
        self._reported_at = ext.app.clock.monotonic()

    async def make(self, picture: Picture) -> dict[str, Stored]:
        storing: asyncio.Task[None] | None = None
        try:
            for variant in self._todo:
                rendered = picture.render(variant)  # blocks the event loop: this child process has no other job
                if storing is not None:
                    await storing
                storing = asyncio.create_task(self._store(variant, rendered))
                await turn()
                await self._report(often=False)
            if storing is not None:
                await storing
        finally:
            if storing is not None:
                storing.cancel()
        await self._report(often=True)
        return self._stored

    async def _store(self, variant: Variant, rendered: Rendered) -> None:
        key = self._folder + variant.name
        await objects.storage().put(key, rendered.data, content_type=MEDIA_TYPE[variant.format])
        digest = hashlib.sha256(rendered.data).hexdigest()
        size = (rendered.width, rendered.height, len(rendered.data), rendered.frames)
        self._stored[variant.name] = made = Stored(key, spec_of(variant), digest, *size)
        data = msgspec.to_builtins(made)
        self._unreported.append(Part(name=variant.name, status=PartStatus.COMPLETED, percent=100, data=data))

    async def _report(self, *, often: bool) -> None:
        """The first report also announces the variants that are still to be made."""
        now = ext.app.clock.monotonic()
        if not self._unreported or (now - self._reported_at < REPORT_SECONDS and not often):
            return
        parts, self._unreported, self._reported_at = self._unreported, [], now
        if not self._announced:
            made, self._announced = {part.name: part for part in parts}, True
            parts = [made.get(variant.name) or Part(name=variant.name) for variant in self._todo]
        done = self._total - len(self._todo) + len(self._stored)
        await self._ctx.keep_parts(parts, percent=100 * done / self._total)


async def _publish(
    ctx: Context, image_id: str, folder: str, plan: Plan, stored: dict[str, Stored], picture: Picture | None
) -> dict[str, Any]:
    """Everything in one commit: the rows, what is not needed any more, and the end of the job."""
    result: dict[str, Any] = {"image": image_id, "variants": sorted(plan.wanted)}
    replaced = [name for name in plan.recorded if name in stored or name not in plan.wanted]
    facts = None if picture is None else _facts(picture)
    async with ctx.transaction() as tx:
        await tx.hold()  # before the image, as transitions of the job do: a deletion would end in a deadlock with this
        image = await tx.one(ext.q.lock_image, tenant=ctx.tenant, id=image_id)
        if image is None or image["job_id"] != ctx.job_id or image["deleted_at"] is not None:
            result = {"image": image_id, "superseded": True}
        else:
            await _replace(tx, image_id, replaced, stored)
            if facts is not None:
                await tx.run(ext.q.set_facts, id=image_id, **facts)
            await tx.run(ext.q.keep, keys=[folder])
            if replaced and ext.settings.has_cdn:
                await tx.enqueue("IMAGE_PURGE", image=image_id)
        await tx.run(ext.q.discard_of_job, job_id=ctx.job_id)
        await tx.complete(result)
    return result


def _facts(picture: Picture) -> dict[str, Any]:
    size = {"width": picture.width, "height": picture.height, "frames": picture.frames}
    return {**size, **picture.fingerprint()._asdict()}


async def _replace(tx: Any, image_id: str, replaced: Iterable[str], stored: dict[str, Stored]) -> None:
    names = [*replaced]
    if names:
        await tx.run(ext.q.discard_variants, image_id=image_id, names=names, seconds=ext.settings.url_seconds)
        await tx.run(ext.q.delete_variants, image_id=image_id, names=names)
    if stored:
        await tx.run(ext.q.put_variants, made=[made.row(image_id, name) for name, made in stored.items()])
