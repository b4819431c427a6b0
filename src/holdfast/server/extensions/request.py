"""The request object of extension routes: caller, path, query, body, database transaction, enqueue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import FormData, Headers

from holdfast.engine import Created
from holdfast.engine.admin.queues import is_paused
from holdfast.engine.cancel import Canceling
from holdfast.engine.insert import checked
from holdfast.errors import HoldfastError, Invalid
from holdfast.model import NewJob
from holdfast.model.enqueueable import MakesJobs, new_job_of
from holdfast.model.job import KEY_MAX
from holdfast.observe.trace_context import carried
from holdfast.server.auth.authenticator import Caller
from holdfast.server.http.multipart import FormPart
from holdfast.server.http.request_body import media_type_of
from holdfast.server.http.route import HttpRequest, Reply, Stream
from holdfast.server.http.streamed_body import StreamedBody
from holdfast.store import Tx
from holdfast.store.open_transaction import OneTransaction

if TYPE_CHECKING:
    from holdfast.server.state import ServerState


class Request(OneTransaction):
    """A request to a route of an extension, authenticated and validated."""

    def __init__(self, server: ServerState, request: HttpRequest, settings: Any, extension: str) -> None:
        super().__init__(server.engine.store, "request")
        self._server, self._asked, self._extension = server, request, extension
        self._refused: list[HoldfastError] = []  # of jobs, in the open transaction
        self._streams: list[Stream] = []
        self.settings = settings
        self.path, self.query, self.body, self.id = request.path, request.query, request.body, request.request_id
        self.headers = Headers(raw=list(request.headers.items()))

    @property
    def caller(self) -> Caller:
        return self._asked.caller

    @property
    def idempotency_key(self) -> str | None:
        """The header `Idempotency-Key`. Raises `Invalid`."""
        key = self.headers.get("idempotency-key")
        if key is not None and not (0 < len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
            raise Invalid(
                f"Idempotency-Key is 1 to {KEY_MAX} printable ASCII characters", code="invalid_idempotency_key"
            )
        return key

    def base_url(self, public_url: str = "") -> str:
        """For links to this server: its public address, where one is configured, else what the client has requested."""
        scheme = "https" if self._server.settings.behind_tls else "http"
        return public_url.rstrip("/") or f"{scheme}://{self.headers.get('host', '')}"

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

    async def secret(self, name: str) -> bytes:
        """Random bytes for signatures, made once and kept in the database: the same in every server process, and
        others for each extension."""
        secrets, own = self._server.secrets, f"extension {self._extension} {name}"
        if own not in secrets:
            secrets[own] = await self._server.engine.keys.server_secret(own)
        return secrets[own]

    @asynccontextmanager
    async def tx(self) -> AsyncIterator[Tx]:
        """One write transaction: committed at the end of the block, rolled back if that raises. Jobs that are enqueued,
        woken or canceled inside it are part of it. On SQLite it blocks all other writes."""
        try:
            async with super().tx() as tx:
                yield tx
        finally:
            if self._tx is None:  # a second one inside it is an error, and the first is still open
                refused, self._refused = self._refused, []
                await self._server.engine.audit.record_refusals(refused)

    async def wake(self, job_id: str, tenant: str | None = None) -> bool:
        """Run a delayed job now: of the caller's tenant, or of `tenant` in a route without a key, such as a webhook."""
        engine, tenant = self._server.engine, self.caller.tenant if tenant is None else tenant
        if self._tx is None:
            return await engine.wake(job_id, tenant=tenant)
        return await engine.within(self._tx).wake(job_id, tenant=tenant)

    async def cancel(self, job_id: str, reason: str = "canceled") -> Canceling:
        """Cancel a job of the caller's tenant. A running one ends when its worker has stopped it."""
        if self._tx is None:
            return await self._server.cancel(job_id, self.caller.tenant, reason)
        return await self._server.engine.within(self._tx).cancel(job_id, reason=reason, tenant=self.caller.tenant)

    async def is_paused(self, queue: str) -> bool:
        """Whether an operator has paused this queue of the caller's tenant."""
        return await self.read(lambda tx: is_paused(tx, queue, self.caller.tenant))

    async def enqueue(self, job: MakesJobs | NewJob | str, /, *args: Any, **kwargs: Any) -> Created:
        """A job of the caller's tenant: of a job type of the app with its arguments, or of a type by its name.
        Inside `tx()` it is part of that transaction."""
        new = msgspec.structs.replace(new_job_of(job, args, kwargs), tenant=self.caller.tenant)
        if new.trace is None and (trace := carried(self._asked.headers)):
            new = msgspec.structs.replace(new, trace=trace)
        engine = self._server.engine
        refuse_unknown = self._server.settings.unknown_job_types == "refuse"
        await engine.job_types.check([new], refuse_unknown=refuse_unknown, within=self._tx)
        made = await (
            self._server.creates.put(checked(new)) if self._tx is None else self._create_within(self._tx, new)
        )
        if not made.existed:
            self._server.metrics.created.add(1, new.queue or engine.ctx.registry.queue_of(new.type))
        return made

    async def _create_within(self, tx: Tx, new: NewJob) -> Created:
        try:
            return await self._server.engine.within(tx).create(new)
        except HoldfastError as refusal:
            self._refused.append(refusal)
            raise

    # -- live updates ---------------------------------------------------------------------------------------------

    async def job_events(self, job_id: str) -> Reply | Stream:
        """The answer of `GET /jobs/{job_id}/events`, for a job of the caller's tenant. Return it from the route, which
        has the answers `{200: "text/event-stream", 204: None}`."""
        from holdfast.server.api import streams  # needs the server, and workers import this module too

        answer = await streams.job_events(self._server, self._asked, job_id)
        if isinstance(answer, Stream):
            self._streams.append(answer)
        return answer

    async def close_streams(self, *, besides: Any) -> None:
        """Those that the route has opened and not returned: each counts against the limits of the caller."""
        for stream in self._streams:
            if stream is not besides:
                await stream.chunks.aclose()  # type: ignore[attr-defined]
