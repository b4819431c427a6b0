"""Where the bytes are: the storage of the service, and the keys of its objects."""

from functools import cache
from pathlib import Path
from typing import Any

from holdfast.errors import StorageUnavailable
from holdfast.storage import Storage
from holdfast.workloads.images.extension import ext

DELETED_AT_ONCE = 1000
# A client waits for its upload while S3 does not respond: once for the request, and once to abort a large object. Less
# would be too short for a part of 5 MiB on a slow line. A server that is down is noticed within a second.
REQUEST_SECONDS, RETRIES = 15.0, 3
OPERATION_SECONDS = 3 * REQUEST_SECONDS  # at most: retries begin within one, the last one after a pause
LEFTOVER_SECONDS = 86_400.0  # until a sweep looks at what a crashed upload or execution has written
MARK = "holdfast-images-"  # begins the name of the object that marks the storage


def storage() -> Storage:
    """That of the settings; by default a folder in the data directory."""
    settings = ext.settings
    url = settings.storage_url or str(Path(ext.app.settings.data_dir).absolute() / "images")
    return _opened(url, settings.access_key_id, settings.secret_access_key)


@cache
def _opened(url: str, access_key_id: str, secret_access_key: str) -> Storage:
    keys = {"access_key_id": access_key_id, "secret_access_key": secret_access_key}
    return ext.open_storage(url, **keys, request_seconds=REQUEST_SECONDS, retries=RETRIES)


async def mark_of(tx: Any) -> str | None:
    """The name of the object that marks the storage; None before the first upload."""
    row = await tx.one(ext.q.mark)
    return None if row is None else str(row["mark"])


async def put_mark(mark: str) -> None:
    await storage().put(mark, b"Objects of the image service are kept here. Do not delete this one.\n")


async def require_mark(mark: str | None) -> None:
    """A wrong bucket, or a volume that is not mounted, looks as if all objects were deleted: that is an outage."""
    if mark is not None and not await storage().exists(mark):
        await storage().check()  # says so if there is no bucket
        message = f"the storage has no object {mark!r}: it is another storage, or its volume is not mounted"
        raise StorageUnavailable(message, full=f"{storage().url}: {message}")


def original_key(image_id: str) -> str:
    """Unique for each upload: nothing that is stored there is ever replaced."""
    return f"originals/{image_id[-2:]}/{image_id}"


def attempt_folder(image_id: str, job_id: str, epoch: int) -> str:
    """What one execution writes. No other execution writes there, so that none can replace the result of another."""
    return f"variants/{image_id[-2:]}/{image_id}/{job_id}-{epoch}/"


async def delete(keys: list[str]) -> None:
    for first in range(0, len(keys), DELETED_AT_ONCE):
        await storage().delete(*keys[first : first + DELETED_AT_ONCE])
