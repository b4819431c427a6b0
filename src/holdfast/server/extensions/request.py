"""The request object of extension routes: caller, path, query, body, database transaction, enqueue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.datastructures import FormData, Headers

from holdfast.engine import Created
from holdfast.model import NewJob
from holdfast.model.enqueueable import MakesJobs, new_job_of
from holdfast.observe.trace_context import carried
from holdfast.server.auth.authenticator import Caller
from holdfast.server.http.multipart import FormPart
from holdfast.server.http.request_body import media_type_of
from holdfast.server.http.route import HttpRequest
from holdfast.server.http.streamed_body import StreamedBody
from holdfast.store import Tx
from holdfast.store.open_transaction import transaction

if TYPE_CHECKING:
    from holdfast.server.state import ServerState

_T = TypeVar("_T")


class Request:
    """A request to a route of an extension, authenticated and validated."""

    def __init__(self, server: ServerState, request: HttpRequest, settings: Any, extension: str) -> None:
        self._server, self._asked, self._extension = server, request, extension
        self._tx: Tx | None = None
        self.settings = settings
        self.path, self.query, self.body, self.id = request.path, request.query, request.body, request.request_id
        self.headers = Headers(raw=list(request.headers.items()))

    @property
    def caller(self) -> Caller:
        return self._asked.caller

    @property
    def content_type(self) -> str:
        """Of the body, in lower case and without parameters; empty if there is none."""
        return media_type_of(self._asked.headers.get(b"content-type", b""))

    # -- streamed bodies ------------------------------------------------------------------------------------------

    def stream(self) -> AsyncIterator[bytes]:
        """The body in chunks, up to the limit of the route."""
        return self._streamed_body().stream()

    async def form(self, *, max_files: int = 100, max_fields: int = 1000) -> FormData:
        """The fields and files of a form. A file above 64 KiB is on disk and closed after the response; all fields
        together have at most 1 MiB."""
        return await self._streamed_body().form(self.headers, max_files=max_files, max_fields=max_fields)

    def parts(self, *, max_parts: int = 1000) -> AsyncIterator[FormPart]:
        """The fields and files of a multipart/form-data body, one after the other while it arrives. Nothing is stored:
        what is not read of a part is skipped when the next one is requested."""
        return self._streamed_body().parts(max_parts=max_parts)

    def set_upload_type(self, media_type: str) -> None:
        """What the uploaded file really is, for the metric `upload_size_bytes`; by default, what the client says."""
        self._streamed_body().upload_type = media_type

    def _streamed_body(self) -> StreamedBody:
        if self._asked.streamed_body is None:
            raise TypeError("the body of this route is a type; declare a media type to stream it")
        return self._asked.streamed_body

    # -- the database ---------------------------------------------------------------------------------------------

    async def read(self, work: Callable[[Tx], Awaitable[_T]]) -> _T:
        """`await request.read(lambda tx: tx.all(ext.q.notes))`: queries that write nothing and block no writes."""
        if self._tx is not None:
            return await work(self._tx)
        return await self._server.engine.store.read(work)

    async def secret(self, name: str) -> bytes:
        """Random bytes for signatures, made once and kept in the database: the same in every server process, and
        others for each extension."""
        secrets, own = self._server.secrets, f"extension {self._extension} {name}"
        if own not in secrets:
            secrets[own] = await self._server.engine.keys.server_secret(own)
        return secrets[own]

    @asynccontextmanager
    async def tx(self) -> AsyncIterator[Tx]:
        """One write transaction: committed at the end of the block, rolled back if that raises. Jobs that are enqueued
        inside it are part of it. On SQLite it blocks all other writes."""
        if self._tx is not None:
            raise TypeError("this request already has an open transaction")
        async with transaction(self._server.engine.store) as tx:
            self._tx = tx
            try:
                yield tx
            finally:
                self._tx = None

    async def wake(self, job_id: str) -> bool:
        """Run a delayed job of the caller's tenant now."""
        engine, tenant = self._server.engine, self.caller.tenant
        if self._tx is None:
            return await engine.wake(job_id, tenant=tenant)
        return await engine.within(self._tx).wake(job_id, tenant=tenant)

    async def enqueue(self, job: MakesJobs | NewJob | str, /, *args: Any, **kwargs: Any) -> Created:
        """A job of the caller's tenant: of a job type of the app with its arguments, or of a type by its name."""
        new = msgspec.structs.replace(new_job_of(job, args, kwargs), tenant=self.caller.tenant)
        if new.trace is None and (trace := carried(self._asked.headers)):
            new = msgspec.structs.replace(new, trace=trace)
        engine = self._server.engine
        refuse_unknown = self._server.settings.unknown_job_types == "refuse"
        await engine.job_types.check([new], refuse_unknown=refuse_unknown, within=self._tx)
        made = await (engine.create(new) if self._tx is None else engine.within(self._tx).create(new))
        if not made.existed:
            self._server.metrics.created.add(1, new.queue or engine.ctx.registry.queue_of(new.type))
        return made
