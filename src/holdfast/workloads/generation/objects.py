"""Where the bytes are: the storage of the service, and the keys of its objects."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.storage import Storage
from holdfast.workloads.generation.extension import ext

ORIGINALS, THUMBNAILS = "originals", "thumbnails"
REQUEST_SECONDS, RETRIES = 15.0, 3
_OF_JOB = re.compile(rf"{ORIGINALS}/([0-9a-f-]{{36}})-\d+/")


def storage() -> Storage:
    """That of the settings; by default a folder in the data directory."""
    settings = ext.settings
    url = settings.storage_url or str(Path(ext.app.settings.data_dir).absolute() / "generation")
    return _opened(url, settings.access_key_id, settings.secret_access_key)


@cache
def _opened(url: str, access_key_id: str, secret_access_key: str) -> Storage:
    keys = {"access_key_id": access_key_id, "secret_access_key": secret_access_key}
    return ext.open_storage(url, **keys, request_seconds=REQUEST_SECONDS, retries=RETRIES)


def thumbnail_key(asset_id: str) -> str:
    return f"{THUMBNAILS}/{asset_id[-2:]}/{asset_id}.webp"


async def is_needed(tx: Any, key: str) -> bool:
    """Whether an asset has this object, or a job that has not ended may still make one of it."""
    job = _OF_JOB.match(key)
    return await tx.one(ext.q.is_recorded, storage_key=key, job_id=job[1] if job else "") is not None


async def is_of_unfinished_job(tx: Any, key: str) -> bool:
    job = _OF_JOB.match(key)
    row = await tx.one(ext.q.request_of_job, job_id=job[1]) if job else None
    return row is not None and row["finished_at"] is None
