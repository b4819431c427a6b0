"""One execution of a generation: asks the provider for the images that are missing, checks and stores each, and records
them together with the end of the job.

An image that is stored is a finished part of the job, which no later execution asks for again. Assets become visible
through the rows of the last transaction, which is fenced by the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast import Context, Reject, Snooze
from holdfast.errors import LeaseLost, StorageError
from holdfast.model import Part, PartStatus
from holdfast.workloads.generation import extension, faults, objects
from holdfast.workloads.generation.classification import required_verdict
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.library import search_text
from holdfast.workloads.generation.moderation import ModeratedImage, Moderator
from holdfast.workloads.generation.outcomes import outcome_of
from holdfast.workloads.generation.picture import CheckedImage, checked
from holdfast.workloads.generation.providers import open_provider
from holdfast.workloads.generation.providers.base import ImageOrder, Made, Pending, Provider
from holdfast.workloads.generation.wanted import SEED_MAX, Wanted

THROTTLED_SECONDS = 30.0
WEBHOOK = "/generations/webhooks/{job_id}"


class StoredImage(msgspec.Struct, frozen=True):
    """An image in the storage: kept as the data of its part until it is recorded."""

    key: str
    content_type: str
    width: int
    height: int
    bytes: int
    sha256: str
    seed: int


class ImageState(msgspec.Struct):
    """What is known of an image that is not stored yet: kept in the checkpoint of the job.

    `definite_failures` is a part of the idempotency key, so that only they lead to a new one."""

    definite_failures: int = 0
    task: str | None = None  # of the provider
    since: datetime | None = None
    attempt: int = 0  # in which it was waited for since then
    failed: str | None = None  # with this code, for good


Result = StoredImage | Pending | ProviderError


async def generate(ctx: Context, wanted: Wanted, moderator: Moderator) -> dict[str, Any]:
    """The result of the job. Raises its outcome."""
    if ctx.checkpoint is None:
        await classify(wanted.guarded_text)
    provider = _opened(wanted.provider or await _requested_provider(ctx))
    try:
        return await _Execution(ctx, wanted, provider, moderator).run()
    finally:
        await provider.close()


async def _requested_provider(ctx: Context) -> str:
    """The default when the job was created, which `POST /jobs` leaves out."""
    async with ctx.transaction() as tx:
        row = await tx.one(ext.q.request_of_job, job_id=ctx.job_id)
    return str(ext.settings.provider if row is None else row["provider"])


def _opened(name: str) -> Provider:
    if name not in ext.settings.providers:
        raise ProviderError("provider_refused", f"provider {name!r} is not configured any more", "permanent")
    return open_provider(name, ext.settings)


async def classify(text: str) -> None:
    """Raises `Reject`, or `ProviderError`."""
    verdict = await required_verdict(text)
    if not verdict.allowed:
        code = faults.PROMPT_REJECTED
        raise Reject(code, faults.MESSAGES[code], context={"category": verdict.category})


class _Execution:
    def __init__(self, ctx: Context, wanted: Wanted, provider: Provider, moderator: Moderator) -> None:
        self._ctx, self._wanted, self._provider, self._moderator = ctx, wanted, provider, moderator
        self._seed = wanted.seed_for(ctx.job_id)
        saved = msgspec.convert((ctx.checkpoint or {}).get("images", []), list[ImageState])
        self._images = saved or [ImageState() for _ in range(wanted.count)]
        self._stored: dict[int, StoredImage] = {}
        self._storing = asyncio.Lock()

    async def run(self) -> dict[str, Any]:
        finished = await self._ctx.finished_parts()
        parts = {position: finished.get(_name(position)) for position in range(self._wanted.count)}
        self._stored = {
            place: msgspec.convert(part.data, StoredImage) for place, part in parts.items() if part is not None
        }
        async with objects.storage().staging(self._ctx.job_id, self._ctx.fence) as staged:
            missing = [
                place for place, state in enumerate(self._images) if not state.failed and place not in self._stored
            ]
            results = await _all([self._make(place, staged) for place in missing])
            await self._raise_outcome(dict(zip(missing, results, strict=True)))
            result = await self._publish()
            if {stored.key for stored in self._stored.values()}.issuperset(staged.published):
                staged.confirm()
            return result

    # -- one image ------------------------------------------------------------------------------------------------

    async def _make(self, place: int, staged: Any) -> Result:
        state, order = self._images[place], self._order(place)
        try:
            answer = await self._ask(order, state)
            if isinstance(answer, Pending):
                await self._wait_for(state, answer)
                return answer
            await self._note_charge(order, answer.cost_micros)
            return await self._store(place, order, answer.data, staged)
        except ProviderError as error:
            extension.provider_errors.add(1, self._provider.name, error.code)
            if error.cost_micros is not None:
                await self._note_charge(order, error.cost_micros)
            if error.definite:
                self._images[place] = ImageState(definite_failures=state.definite_failures + 1)
            return error
        except StorageError as error:
            return ProviderError(error.code, error.full, "transient")

    def _order(self, place: int) -> ImageOrder:
        wanted, failures = self._wanted, self._images[place].definite_failures
        key = f"{self._ctx.job_id}-{place}" + (f"-{failures}" if failures else "")
        return ImageOrder(
            prompt=wanted.prompt,
            negative_prompt=wanted.negative_prompt,
            width=wanted.width,
            height=wanted.height,
            seed=(self._seed + place) % (SEED_MAX + 1),
            style=wanted.style,
            key=key,
            webhook_url=_webhook_url(self._ctx.job_id),
        )

    async def _ask(self, order: ImageOrder, state: ImageState) -> Made | Pending:
        began, operation = ext.app.clock.monotonic(), "create" if state.task is None else "poll"
        try:
            if state.task is None:
                return await self._provider.create(order)
            return await self._provider.poll(order, state.task)
        except ProviderError as error:
            if state.task is None or error.kind != "throttled":
                raise
            return Pending(state.task, error.retry_after or THROTTLED_SECONDS)  # it goes on, and is asked too often
        finally:
            took = ext.app.clock.monotonic() - began
            extension.provider_seconds.observe(took, self._provider.name, operation)

    async def _wait_for(self, state: ImageState, pending: Pending) -> None:
        now = ext.app.clock.now()
        if state.task != pending.task or state.attempt != self._ctx.attempt:
            state.task, state.since, state.attempt = pending.task, now, self._ctx.attempt
            await self._save()  # before anything else can go wrong: the provider is paid for it
        waited = (now - (state.since or now).astimezone(UTC)).total_seconds()
        if waited > ext.settings.task_timeout_seconds:
            message = f"task {pending.task} is not finished after {waited:.0f} s"
            raise ProviderError("provider_timeout", message, "transient")

    async def _note_charge(self, order: ImageOrder, micros: int) -> None:
        name = self._provider.name
        if name != "local":
            async with self._ctx.transaction() as tx:
                charge = {"call_key": order.key, "tenant": self._ctx.tenant, "provider": name, "micros": micros}
                if await tx.one(ext.q.add_charge, **charge) is None:
                    return  # it is paid already
        extension.images_made.add(1, name)
        extension.provider_cost.add(micros, name)

    async def _store(self, place: int, order: ImageOrder, data: bytes, staged: Any) -> StoredImage:
        image = await asyncio.to_thread(checked, data, width=order.width, height=order.height)
        await self._moderate(image, data)
        name = f"{place + 1}{image.suffix}"
        async with self._storing:
            await staged.put(name, data, content_type=image.content_type)
            keys = await staged.publish(objects.ORIGINALS, fence=self._ctx.progress)
            size = {"width": image.width, "height": image.height, "bytes": image.bytes}
            stored = StoredImage(keys[name], image.content_type, **size, sha256=image.sha256, seed=order.seed)
            self._stored[place] = stored
            data_of_part = msgspec.to_builtins(stored)
            part = Part(name=_name(place), status=PartStatus.COMPLETED, percent=100, data=data_of_part)
            await self._ctx.keep_part(part, percent=100 * len(self._stored) / self._wanted.count)
        return stored

    async def _moderate(self, image: CheckedImage, data: bytes) -> None:
        moderated = ModeratedImage(
            data=data,
            content_type=image.content_type,
            width=image.width,
            height=image.height,
            sha256=image.sha256,
            prompt=self._wanted.prompt,
        )
        try:
            verdict = await self._moderator.moderate(moderated)
        except (ProviderError, LeaseLost):
            raise
        except Exception as error:  # of a plug-in: an image that was not moderated is not shown
            message = f"{type(error).__name__}: {error}"
            raise ProviderError("moderator_unavailable", message, "transient") from error
        if not verdict.allowed:
            raise ProviderError(faults.IMAGE_REJECTED, verdict.category, "rejected")

    # -- the outcome ----------------------------------------------------------------------------------------------

    async def _raise_outcome(self, results: dict[int, Result]) -> None:
        """Returns if the images that can be made are stored."""
        errors = {place: result for place, result in results.items() if isinstance(result, ProviderError)}
        for error in errors.values():
            if error.kind == "rejected":
                raise outcome_of(error)
        is_last = self._ctx.attempt >= self._ctx.max_attempts
        lasting = {place: error for place, error in errors.items() if error.kind == "permanent" or is_last}
        for place, error in lasting.items():
            self._images[place].failed = error.code
        if len(lasting) == self._wanted.count:
            raise outcome_of(next(iter(lasting.values())))
        passing = [error for place, error in errors.items() if place not in lasting]
        pending = [result.seconds for result in results.values() if isinstance(result, Pending)]
        if errors or pending:
            await self._save()
        if passing:
            raise outcome_of(max(passing, key=lambda error: error.retry_after or 0))
        if pending:
            raise Snooze(min(pending))
        if not self._stored:
            failed = next(state.failed for state in self._images if state.failed)
            raise outcome_of(ProviderError(failed, "no image could be made", "permanent"))

    async def _save(self) -> None:
        await self._ctx.save({"images": msgspec.to_builtins(self._images)})

    async def _publish(self) -> dict[str, Any]:
        """Everything in one commit: the assets, the jobs that make their thumbnails, and the end of the job."""
        ids = ext.app.ids.job_ids(ext.app.clock.now(), len(self._stored))
        places = sorted(self._stored)
        rows = [_row(id_, place, self._stored[place]) for id_, place in zip(ids, places, strict=True)]
        failed = {_name(place): state.failed for place, state in enumerate(self._images) if state.failed}
        result = {"assets": [*ids], "failed": failed}
        async with self._ctx.transaction() as tx:
            await tx.hold()
            search = search_text(self._wanted.prompt)
            await tx.run(ext.q.put_assets, made=rows, job_id=self._ctx.job_id, search=search)
            for id_ in ids:
                await tx.enqueue("GENERATION_THUMBNAIL", asset=id_)
            await tx.complete(result)
        return result


async def _all(images: list[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Their results. When one raises, such as LeaseLost, the others are stopped first."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(image) for image in images]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _name(place: int) -> str:
    return f"image {place + 1}"


def _row(asset_id: str, place: int, stored: StoredImage) -> Sequence[Any]:
    facts = (stored.key, stored.content_type, stored.width, stored.height, stored.bytes, stored.sha256, stored.seed)
    return (asset_id, place + 1, *facts)


def _webhook_url(job_id: str) -> str | None:
    """Only if what comes can be checked."""
    settings = ext.settings
    if not settings.webhook_secret or not settings.public_url:
        return None
    return str(settings.public_url).rstrip("/") + WEBHOOK.format(job_id=job_id)
