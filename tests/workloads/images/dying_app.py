"""The image service in a process that kills itself, or waits, at a step of an upload, of processing or of a deletion.

`IMAGES_STEP` names the step. It happens once: the first process that reaches it leaves the file `IMAGES_MARK`.
"""

import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import Context
from holdfast.sdk.handler_transactions import HandlerDatabase, HandlerTransaction
from holdfast.server.extensions.request import Request
from holdfast.storage import Storage
from holdfast.workloads.images import jobs, objects
from holdfast.workloads.images.service import app

__all__ = ["DELETION_STEPS", "DELETION_STEPS_OF_SERVER", "FIRST_UPLOAD_STEPS", "STEPS", "UPLOAD_STEPS", "app"]

# In the order of an execution that makes three variants.
STEPS = (
    "planned",
    "before put 1",
    "after put 1",
    "after put 3",
    "before parts",
    "after parts",
    "before publishing",
    "inside publishing",
    "after publishing",
)
# Of the first upload to a storage, before the others.
FIRST_UPLOAD_STEPS = (
    "before the commit of the garbage of the mark",
    "after the commit of the garbage of the mark",
    "after the mark",
    "before the commit of the mark",
    "after the commit of the mark",
)
UPLOAD_STEPS = (
    "before the commit of the garbage",
    "after the commit of the garbage",
    "inside the upload",
    "after the upload",
    "before the commit of the image",
    "after the commit of the image",
)
DELETION_STEPS_OF_SERVER = ("before the commit of the request", "after the commit of the request")
DELETION_STEPS = (
    "before the commit of the rows",
    "after the commit of the rows",
    "after an object",
    "before the purge",
    "before the commit of the end",
    "after the commit of the end",
)
COMMITS = {"add_mark": "mark", "add_garbage": "garbage", "add_original": "image", "image": "request"}
CUT = 300_000  # bytes: more than the storage collects before it writes
WAIT_SECONDS = 60.0


def reach(step: str) -> None:
    if os.environ.get("IMAGES_STEP") != step:
        return
    try:
        Path(os.environ["IMAGES_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(WAIT_SECONDS)


class _Count:
    puts = transactions = 0


def _around(function: Callable[..., Awaitable[Any]], before: Callable[[], None], after: Callable[[], None]) -> Any:
    async def called(*args: Any, **kwargs: Any) -> Any:
        before()
        answer = await function(*args, **kwargs)
        after()
        return answer

    return called


def _nothing() -> None: ...


# -- requests ----------------------------------------------------------------------------------------------------------


class _Watched:
    """A transaction that knows what its first query is about."""

    def __init__(self, tx: Any) -> None:
        self._tx, self.about = tx, ""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._tx, name)
        if name not in ("all", "one", "run"):
            return attribute

        def asked(query: Any, **params: Any) -> Any:
            self.about = self.about or _about(query.name, params)
            return attribute(query, **params)

        return asked


def _about(query: str, params: dict[str, Any]) -> str:
    of_mark = query == "add_garbage" and params["storage_key"].startswith(objects.MARK)
    return "garbage of the mark" if of_mark else COMMITS.get(query, query)


@asynccontextmanager
async def _request_tx(self: Request) -> Any:
    async with _real_request_tx(self) as tx:
        watched = _Watched(tx)
        yield watched
        commit = f"the commit of the {watched.about}"
        await tx.flush()
        reach(f"before {commit}")
    reach(f"after {commit}")


async def _put(self: Storage, key: str, data: Any, **more: Any) -> Any:
    if key.startswith(objects.MARK):
        answer = await _real_put(self, key, data, **more)
        reach("after the mark")
    elif key.startswith("originals/"):
        answer = await _real_put(self, key, _cut(data), **more)
        reach("after the upload")
    else:
        _Count.puts += 1
        reach(f"before put {_Count.puts}")
        answer = await _real_put(self, key, data, **more)
        reach(f"after put {_Count.puts}")
    return answer


async def _cut(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """When it is asked for more, the storage has begun to write."""
    size = 0
    async for chunk in chunks:
        yield chunk
        size += len(chunk)
        if size >= CUT:
            reach("inside the upload")


# -- jobs --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _transaction(self: HandlerDatabase, lease: Any) -> Any:
    if lease.type == "IMAGE_DELETE":
        async with _real_transaction(self, lease) as tx:
            yield tx
        reach(f"after the commit of the {_part(tx)}")
        return
    _Count.transactions += 1
    last = _Count.transactions == 2
    if last:
        reach("before publishing")
    async with _real_transaction(self, lease) as tx:
        yield tx
    reach("after publishing" if last else "planned")


def _part(tx: HandlerTransaction) -> str:
    return "rows" if tx.completed is None else "end"


async def _end(self: HandlerTransaction) -> None:
    await _real_end(self)
    await self.flush()
    if self._lease.type == "IMAGE_DELETE":
        reach(f"before the commit of the {_part(self)}")


async def _complete(self: HandlerTransaction, result: Any = None) -> None:
    await _real_complete(self, result)
    await self.flush()
    reach("inside publishing")


_real_put, _real_request_tx, _real_transaction = Storage.put, Request.tx, HandlerDatabase.transaction
_real_end, _real_complete = HandlerTransaction.end, HandlerTransaction.complete
if "IMAGES_STEP" in os.environ:
    Storage.put = _put  # type: ignore[method-assign]
    Request.tx = _request_tx  # type: ignore[method-assign]
    if os.environ["IMAGES_STEP"] == "after an object":
        objects.DELETED_AT_ONCE = 1
    Storage.delete = _around(Storage.delete, _nothing, lambda: reach("after an object"))  # type: ignore[method-assign]
    jobs.purge_images = _around(jobs.purge_images, lambda: reach("before the purge"), _nothing)
    parts = _around(Context.keep_parts, lambda: reach("before parts"), lambda: reach("after parts"))
    Context.keep_parts = parts  # type: ignore[method-assign]
    HandlerDatabase.transaction = _transaction  # type: ignore[method-assign]
    HandlerTransaction.end = _end  # type: ignore[method-assign]
    HandlerTransaction.complete = _complete  # type: ignore[method-assign]
