"""Opens a server process: its state, and the background loops that run beside its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager

from holdfast.assembly.engine import AppParts, OpenEngine, extension_maintenance, open_all, retention, start_extensions
from holdfast.background import Loop, Loops
from holdfast.batching import Batcher, SplitBatcher
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch
from holdfast.dispatch.listener import Listener
from holdfast.engine import Created, Engine
from holdfast.engine.cancel import CONTROL
from holdfast.engine.insert import CheckedJob
from holdfast.extend import Extension
from holdfast.ids import Ids
from holdfast.maintenance.maintainer import Maintainer, WorkerEventRecorder
from holdfast.maintenance.rotation import Rotation
from holdfast.model.key import Scope
from holdfast.observe.storage_metrics import storage_metrics
from holdfast.observe.tracing import traces
from holdfast.server.api.cursors import Cursors
from holdfast.server.auth.authenticator import Authenticator
from holdfast.server.health_monitor import HealthMonitor, folder_of
from holdfast.server.live.feed import EventFeed
from holdfast.server.live.long_poll import LongPoll
from holdfast.server.live.redis import open_redis
from holdfast.server.state import ServerState
from holdfast.settings import Settings
from holdfast.store.notify import queue_waker
from holdfast.store.presence import Presence, open_presence
from holdfast.webhooks.alerts import AlertSettings, kinds_of
from holdfast.webhooks.deliverer import WebhookDeliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender

GATHERING_TURNS = 4  # of the event loop between two batches, so that more requests join the next one


def _creates(engine: Engine) -> Batcher[CheckedJob, Created]:
    return Batcher(engine.create_each, turns=GATHERING_TURNS, answers_each=True)


def _creates_of(engine: Engine) -> SplitBatcher[CheckedJob, Created]:
    """Apart from the others: what may have to wait for another transaction with the same key, or for hooks."""

    def kind_of(one: CheckedJob) -> Hashable:
        needs = engine.ctx.hooks.needs_of(one.job.type)
        return one.job.idempotency_key is not None if needs is None else tuple(needs)

    return SplitBatcher(kind_of, lambda: _creates(engine))


@asynccontextmanager
async def open_server(settings: Settings, app: AppParts, *, allow_local: bool) -> AsyncIterator[ServerState]:
    """Yields when the server can handle requests; its background loops run until the context ends."""
    clock, ids = app.clock, app.ids
    await start_extensions(app.extensions)
    async with AsyncExitStack() as stack:
        opened = await open_all(settings, app)
        stack.push_async_callback(opened.close)
        loops = Loops(clock, ids)
        presence = await open_presence(settings.url, clock, ids, queues=None, loops=loops)
        stack.push_async_callback(presence.close)
        opened.engine.ctx.wakers.append(queue_waker(presence.wake))
        await presence.share(opened.engine.results.signals)
        listener, rotation = _listener(opened.dispatch, presence, ids), Rotation(clock, ids)
        server = _server_state(
            settings, app, opened, presence, listener, rotation, loops=loops, allow_local=allow_local
        )
        stack.push_async_callback(server.deliverer.close)
        if server.redis is not None:
            stack.push_async_callback(server.redis.close)
        await stack.enter_async_context(loops.running(_background(server, listener, rotation, app.extensions)))
        yield server


def _server_state(
    settings: Settings,
    app: AppParts,
    opened: OpenEngine,
    presence: Presence,
    listener: Listener | None,
    rotation: Rotation,
    *,
    loops: Loops,
    allow_local: bool,
) -> ServerState:
    engine, clock, ids, extensions = opened.engine, app.clock, app.ids, app.extensions
    summaries, feed = Batcher(engine.reads.summaries, turns=GATHERING_TURNS), EventFeed(engine, clock)
    server = ServerState(
        engine,
        clock,
        ids,
        settings,
        Authenticator(
            engine,
            clock,
            admin_secret=settings.admin_secret,
            allow_local=allow_local,
            rate_per_second=settings.rate_per_second,
            behind_tls=settings.behind_tls,
        ),
        _creates_of(engine),
        summaries,
        Cursors(engine),
        feed,
        LongPoll(engine, presence, clock, ids, hinted=lambda: listener is not None and listener.up),
        HealthMonitor(engine, clock, folder_of(settings), tell=rotation.update),
        open_deliverer(engine, clock, ids, settings),
        loops=loops,
        retention=retention(settings),
        traces=traces() if settings.traces else None,
        redis=open_redis(settings, engine, summaries, feed, clock, ids),
        dispatch=opened.dispatch,
        extension_routes=[route for each in extensions for route in each.routes],
        mounts=[one for each in extensions for one in each.mounts],
        job_scopes={CONTROL: Scope.JOBS_CANCEL, **app.job_scopes},
        caller_fields=app.caller_fields,
        about_scopes={scope: about for each in extensions for scope, about in each.scopes.items()},
        health_fields=[probe for each in extensions for probe in each.health_fields],
        extension_settings=lambda: [row for each in extensions for row in each.shown_settings()],
    )
    if extensions:
        server.metrics.adopt(storage_metrics.instruments)
    for extension in extensions:
        server.metrics.adopt(extension.metrics.values())
    return server


def _background(
    server: ServerState, listener: Listener | None, rotation: Rotation, extensions: tuple[Extension, ...]
) -> dict[str, Loop]:
    """The loops that run beside the requests."""
    engine, clock, ids, every = server.engine, server.clock, server.ids, server.settings.sweep_seconds
    loops: dict[str, Loop] = {
        "API key usage": server.auth.run,
        "event feed": server.feed.run,
        "long poll": server.long_poll.run,
        "health monitor": server.health.run,
        "webhook deliverer": server.deliverer.run,
        "queue metrics": server.queue_metrics.run,
        "worker events": WorkerEventRecorder(engine, clock, ids).run,
        "maintenance": Maintainer(engine, clock, ids, every=every, retention=server.retention, rotation=rotation).run,
    }
    if extensions:
        loops["extension health"] = server.extension_health.run
        loops["extension maintenance"] = extension_maintenance(engine, clock, ids, extensions).run
    if server.redis is not None:
        loops |= server.redis.loops
    if listener is not None:
        loops["broker listener"] = listener.run
    elif server.dispatch is not None:
        loops["broker probe"] = server.dispatch.probe().run
    return loops


def _listener(dispatch: Dispatch | None, presence: Presence, ids: Ids) -> Listener | None:
    """Receives every hint, for the claims that wait in this server. Not from a queue that all servers share."""
    if dispatch is None or dispatch.mode.shared:
        return None
    return dispatch.listen(f"server-{ids.bits(64):016x}", presence.wake, busy=False)


def open_deliverer(engine: Engine, clock: Clock, ids: Ids, settings: Settings) -> WebhookDeliverer:
    egress = Egress(hosts=settings.webhook_hosts, private=settings.unsafe_private_webhooks)
    alerts = AlertSettings(
        url=settings.alert_webhook_url,
        kinds=kinds_of(settings.alert_on),
        cooldown_seconds=settings.alert_rate_limit_seconds,
        timeout_seconds=settings.alert_webhook_timeout,
    )
    if alerts.url:
        egress.check(alerts.url, listed=False)  # fail at the start, not at the first alert
    return WebhookDeliverer(engine, clock, ids, WebhookSender(egress), alerts)
