"""The route of provider webhooks: a message that a task has ended wakes the job, which then asks the provider itself.

So a message that is early, late, repeated or untrue does no harm.
"""

from __future__ import annotations

import contextlib

from holdfast.errors import Conflict, NotFound, Unauthorized
from holdfast.extend import Request
from holdfast.signatures import verify
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.routes.cursors import ID

BODY_BYTES_MAX = 1 << 20


@ext.route(
    *("POST", "/generations/webhooks/{job_id}"),
    scope=None,
    about="For the provider of images: a task of this job has ended.",
    body="*/*",
    body_max=BODY_BYTES_MAX,
    answers={204: None},
    refuses=(401, 404),
)
async def ended(request: Request) -> None:
    body = b"".join([chunk async for chunk in request.stream()])
    secret = ext.settings.webhook_secret
    if not secret:
        raise NotFound("webhooks are not configured: set HOLDFAST_GENERATION_WEBHOOK_SECRET", code="no_webhooks")
    if not verify(secret, request.headers, body, ext.app.clock.now()):
        raise Unauthorized("the signature of the webhook is missing, too old or wrong", code="invalid_signature")
    job_id, row = request.path["job_id"], None
    if ID.fullmatch(job_id):
        row = await request.read(lambda tx: tx.one(ext.q.request_of_job, job_id=job_id))
    if row is None:
        raise NotFound("there is no such generation", code="generation_not_found")
    if row["finished_at"] is None:
        with contextlib.suppress(Conflict):  # it has ended meanwhile
            await request.wake(job_id, tenant=row["tenant"])
