"""Staging: objects of an attempt are staged under its own prefix, then published under its own keys.

Every attempt of a job has another epoch, which is part of each key it writes. A stale attempt therefore never touches
objects of a newer one: the transaction that records the published keys, fenced by the lease, decides.

Leftovers of a crashed attempt are found by their age. A manifest lists the keys to be published before the first copy,
so that a sweep also finds published objects that were never recorded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import isawaitable

from holdfast.errors import Invalid, LeaseLost, ObjectNotFound
from holdfast.storage.backend import CONTENT_TYPE, Description, ObjectInfo
from holdfast.storage.checks import RESERVED, check_key, described
from holdfast.storage.objects import Data, Download, Objects

STAGING, UPLOADS = f"{RESERVED}/staging", f"{RESERVED}/uploads"
DATA, MANIFEST = "data", "manifest"
COPIES = 4  # at once
_ATTEMPT = re.compile(rf"{re.escape(STAGING)}/([^/]+/\d+)/.")  # other objects there are not Holdfast's

# Called before publishing, and again before the keys are returned. False, or an error, stops it.
Fence = Callable[[], Awaitable[object] | object]
Recorded = Callable[[str], Awaitable[bool]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StaleStaging:
    """Leftovers of an attempt. `published`: keys it may have copied objects to."""

    job_id: str
    epoch: int
    keys: tuple[str, ...]
    size: int
    modified: datetime
    published: tuple[str, ...]


class Staged:
    """The staged objects of one attempt, by name."""

    def __init__(self, objects: Objects, job_id: str, epoch: int) -> None:
        self._objects = objects
        self.job_id, self.epoch = job_id, epoch
        self.prefix = f"{STAGING}/{job_id}/{epoch}"
        self.names: dict[str, ObjectInfo] = {}
        self.published: list[str] = []  # or about to be
        self._handed_out: set[str] = set()
        self._is_confirmed = False

    async def put(
        self,
        name: str,
        data: Data,
        *,
        content_type: str = CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        size: int | None = None,
    ) -> ObjectInfo:
        description = described(content_type, metadata, headers)
        self.names[name] = info = await self._objects.put(self._key(name), data, description, size)
        return info

    async def get(self, name: str) -> Download:
        info = await self._objects.head(self._key(name))
        return Download(self._objects, info, 0, info.size)

    async def publish(self, to: str, *, fence: Fence) -> dict[str, str]:
        """Copy the staged objects to `to/JOB-EPOCH/NAME`; returns the final keys by name. Record them in the
        transaction that is fenced by the lease: only recorded keys count."""
        keys = {name: check_key(f"{to}/{self.job_id}-{self.epoch}/{name}") for name in self.names}
        await self._check(fence)
        self.published += [key for key in keys.values() if key not in self.published]
        self._is_confirmed = False
        manifest = json.dumps(self.published).encode()
        await self._objects.put(f"{self.prefix}/{MANIFEST}", manifest, Description("application/json"))
        await self._copy(keys)
        try:
            await self._check(fence)
        except Exception:
            await self._delete([key for key in keys.values() if key not in self._handed_out])  # none can be recorded
            raise
        self._handed_out.update(keys.values())
        return keys

    def confirm(self) -> None:
        """The transaction that records the published keys is committed: sweeps need not check them."""
        self._is_confirmed = True

    async def _copy(self, keys: Mapping[str, str]) -> None:
        left = iter(keys.items())

        async def copy_some() -> None:
            for name, key in left:
                await self._objects.copy(self._key(name), key)

        try:
            async with asyncio.TaskGroup() as copying:
                for _ in range(COPIES):
                    copying.create_task(copy_some())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _check(self, fence: Fence) -> None:
        answer = fence()
        if (await answer if isawaitable(answer) else answer) is False:
            raise LeaseLost(f"attempt {self.epoch} has lost job {self.job_id}: nothing is published")

    def _key(self, name: str) -> str:
        check_key(name, "name")
        return f"{self.prefix}/{DATA}/{name}"

    async def clean(self) -> None:
        """Delete the staged objects. The manifest is kept until `confirm`."""
        keys = [self._key(name) for name in self.names]
        if self._is_confirmed:
            keys.append(f"{self.prefix}/{MANIFEST}")
        await self._delete(keys)

    async def _delete(self, keys: list[str]) -> None:
        try:
            await self._objects.delete(keys)
        except Exception as error:
            log.warning(
                "staged objects of job %s, attempt %s, could not be deleted and remain until the next sweep: %s",
                self.job_id,
                self.epoch,
                error,
            )


class Staging:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @asynccontextmanager
    async def attempt(self, job_id: str, epoch: int) -> AsyncIterator[Staged]:
        """Around the work of one attempt. Staged objects are deleted at the end. Published ones stay; unless `confirm`
        was called, a sweep checks later whether they are recorded, because the job may still fail."""
        if "/" in check_key(job_id, "job id") or not isinstance(epoch, int) or epoch < 0:
            raise Invalid(f"job id {job_id!r} and epoch {epoch!r} do not name an attempt", code="invalid_attempt")
        staged = Staged(self._objects, job_id, epoch)
        try:
            yield staged
        finally:
            await asyncio.shield(staged.clean())

    async def stale(self, older_than: float) -> list[StaleStaging]:
        """Attempts without new objects for so many seconds, which must be longer than any attempt runs."""
        before = self._objects.clock.now() - timedelta(seconds=older_than)
        found: dict[str, list[ObjectInfo]] = {}
        async for info in self._objects.list(STAGING):
            if attempt := _ATTEMPT.match(info.key):
                found.setdefault(attempt[1], []).append(info)
        old = {attempt: infos for attempt, infos in found.items() if max(info.modified for info in infos) < before}
        return [await self._described(attempt, infos) for attempt, infos in old.items()]

    async def sweep(self, older_than: float, *, recorded: Recorded) -> int:
        """Delete the leftovers of crashed attempts; returns the number of attempts. `recorded` tells whether the
        database has a published key, which is then kept."""
        stale = await self.stale(older_than)
        for attempt in stale:
            lost = [key for key in attempt.published if not await recorded(key)]
            manifest = [key for key in attempt.keys if key.endswith(f"/{MANIFEST}")]
            await self._objects.delete(lost)
            await self._objects.delete([key for key in attempt.keys if key not in manifest])
            await self._objects.delete(manifest)  # last: while it exists, the sweep can be repeated
        before = self._objects.clock.now() - timedelta(seconds=older_than)
        await self._objects.delete([info.key async for info in self._objects.list(UPLOADS) if info.modified < before])
        return len(stale)

    async def _described(self, attempt: str, infos: list[ObjectInfo]) -> StaleStaging:
        job_id, _, epoch = attempt.partition("/")
        keys, size = tuple(info.key for info in infos), sum(info.size for info in infos)
        newest = max(info.modified for info in infos)
        return StaleStaging(job_id, int(epoch), keys, size, newest, await self._published(attempt))

    async def _published(self, attempt: str) -> tuple[str, ...]:
        try:
            info = await self._objects.head(f"{STAGING}/{attempt}/{MANIFEST}")
            return tuple(json.loads(await Download(self._objects, info, 0, info.size).read()))
        except ObjectNotFound:
            return ()
