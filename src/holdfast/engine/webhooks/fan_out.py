"""Fan-out: turn the event log into deliveries, one per event and subscribed webhook: once, in order, without gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.reads.read import Cursor, feed, feed_end
from holdfast.engine.registry import Snapshot
from holdfast.engine.webhooks import alerts
from holdfast.engine.webhooks.alerts import MAILBOX, AlertRules
from holdfast.engine.webhooks.webhooks import READER, every
from holdfast.lifecycle import STATUS, Machine, State
from holdfast.model import Event
from holdfast.model.webhook import Webhook, event_name
from holdfast.store import Row, Tx, q
from holdfast.wire import WebhookData, WebhookMessage

PAGE = 500  # events per transaction; each may become a message for every webhook
BATCH = 1000  # messages per statement
NO_JOB, TENANT = "00000000-0000-0000-0000-000000000000", "default"
FAILED = (State.RETRYING, State.DEAD, State.REJECTED)  # the reason is the code of an error

Made = tuple[str, str, str, int, str, str]  # a row for `put_deliveries`, without its id


class FannedOut(msgspec.Struct, frozen=True):
    """`listening`: there are enabled webhooks or alerts. `full`: there are more events to read."""

    listening: bool
    full: bool = False
    made: int = 0


async def news(tx: Tx, watch: AlertRules) -> tuple[bool, bool]:
    """Whether there are enabled webhooks or alerts, and whether there are new events: only then lock the reader."""
    listening = bool(watch.kinds) or any(hook.enabled for hook in await every(tx))
    row = await tx.one(q.reader, name=READER)
    if row is None:
        return listening, True
    events, _ = await feed(tx, Cursor.of(row), limit=1)
    return listening, bool(events)


async def skip(tx: Tx) -> FannedOut:
    """Without webhooks and alerts: advance to the end of the log, unless a webhook was created meanwhile."""
    at, end = await _locked(tx), await feed_end(tx)
    if any(hook.enabled for hook in await every(tx)):
        return FannedOut(True, full=True)
    if at is not None:
        await _advance(tx, at, end)
    return FannedOut(False)


async def fan_out(tx: Tx, ctx: EngineContext, watch: AlertRules) -> FannedOut:
    """Process one page of the log. The reader is locked until the commit; if another process holds it, do nothing."""
    at = await _locked(tx)
    if at is None:
        return FannedOut(True)
    events, after = await feed(tx, at, limit=PAGE)
    # Read after the page: a webhook created in between must get the events of the page.
    hooks = [hook for hook in await every(tx) if hook.enabled]
    jobs = await _jobs(tx, events, hooks, watch)
    snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in jobs.values()))
    made = [*_messages(events, hooks, jobs, snapshots), *await _alerts(tx, ctx, watch, events, jobs)]
    await _put(tx, ctx, made)
    await _advance(tx, at, after)
    return FannedOut(True, len(events) == PAGE, len(made))


async def _put(tx: Tx, ctx: EngineContext, made: list[Made]) -> None:
    ids = ctx.ids.job_ids(ctx.clock.now(), len(made)) if made else []
    rows = [(new, *message) for new, message in zip(ids, made, strict=True)]
    for start in range(0, len(rows), BATCH):
        await tx.all(q.put_deliveries, made=rows[start : start + BATCH])


async def _locked(tx: Tx) -> Cursor | None:
    row = await tx.one(q.locked_reader, name=READER)
    if row is not None:
        return Cursor.of(row)
    end = await feed_end(tx)
    new = await tx.one(q.put_reader, name=READER, **end._asdict())
    return end if new else None


async def _advance(tx: Tx, at: Cursor, after: Cursor) -> None:
    """Never back: if the last events were pruned, the end of the log is before the position of the reader."""
    if after > at:
        await tx.one(q.advance_reader, name=READER, **after._asdict())


async def _jobs(tx: Tx, events: list[Event], hooks: list[Webhook], watch: AlertRules) -> Mapping[str, Row]:
    """The jobs that webhooks or alerts may be about."""
    named = {(hook.tenant, name) for hook in hooks for name in hook.wanted.events}
    ids = {
        event.job_id
        for event in events
        if (event.tenant, event_name(event)) in named or (watch.kinds and alerts.matters(event))
    }
    return {row["id"]: row for row in await tx.all(q.webhook_jobs, ids=sorted(ids))} if ids else {}


def _messages(
    events: list[Event], hooks: list[Webhook], jobs: Mapping[str, Row], snapshots: Mapping[int, Snapshot]
) -> Iterator[Made]:
    for event in events:
        name, job = event_name(event), jobs.get(event.job_id)
        if name is None or job is None:
            continue
        subscribed = [hook for hook in hooks if _wants(hook, event, name, job)]
        if subscribed:
            text = msgspec.json.encode(_message(event, name, job, snapshots[job["policy"]].machine)).decode()
            yield from ((hook.id, event.tenant, event.job_id, event.seq, name, text) for hook in subscribed)


def _wants(hook: Webhook, event: Event, name: str, job: Row) -> bool:
    """Not for events from before the webhook was created."""
    return (
        hook.tenant == event.tenant
        and hook.created_at <= event.at
        and hook.wanted.fits(name, job["type"], job["queue"])
    )


def _message(event: Event, name: str, job: Row, machine: Machine) -> WebhookMessage:
    """Only ids, names and codes; a receiver reads everything else with its key."""
    state = State(event.to_state or State.RUNNING)
    data = WebhookData(
        job_id=event.job_id,
        job_type=job["type"],
        queue=job["queue"],
        status=STATUS[state],
        state=machine.words[state],
        seq=event.seq,
        subject=job["subject"],
        error=event.reason if state in FAILED else None,
    )
    return WebhookMessage(name, event.at, data)


async def _alerts(
    tx: Tx, ctx: EngineContext, watch: AlertRules, events: list[Event], jobs: Mapping[str, Row]
) -> list[Made]:
    if not watch.kinds or not any(alerts.matters(event) for event in events):
        return []
    found = await alerts.due(tx, watch, events, jobs, ctx.clock.now())
    return [
        (MAILBOX[alert.kind], alert.event.tenant, alert.event.job_id, alert.event.seq, alert.kind, body.decode())
        for alert, body in found
    ]


async def alert_of_extensions(tx: Tx, ctx: EngineContext, watch: AlertRules, missing: Mapping[str, int]) -> bool:
    """False: another server holds the reader, or the last such alert is too recent."""
    if await _locked(tx) is None:
        return False
    now = ctx.clock.now()
    body = await alerts.due_for_extensions(tx, watch, missing, now)
    if body is None:
        return False
    number = int(now.timestamp()) % 2**31  # without a job, the time makes the alert unique
    await _put(tx, ctx, [(MAILBOX[alerts.EXTENSION], TENANT, NO_JOB, number, alerts.EXTENSION, body.decode())])
    return True
