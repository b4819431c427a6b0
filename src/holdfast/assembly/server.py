"""A server process: everything it consists of, and the loops that run beside its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from holdfast.assembly.engine import extension_maintenance, open_all, open_presence, retention
from holdfast.background import Loop, Loops
from holdfast.batching import Batcher, SplitBatcher
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch
from holdfast.dispatch.listener import Listener
from holdfast.engine import Created, Engine
from holdfast.engine.hooks.hooks import Hooks
from holdfast.engine.insert import Ready
from holdfast.extend import Extension
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.maintenance.maintainer import Maintainer, WorkerEventRecorder
from holdfast.maintenance.rotation import Rotation
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
from holdfast.store.notify import by_queue
from holdfast.store.presence import Presence
from holdfast.webhooks.alerts import AlertSettings, kinds_of
from holdfast.webhooks.deliverer import WebhookDeliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender

GATHERING_TURNS = 4  # of the event loop: the answered ask again, and those who asked meanwhile come in


def _creates(engine: Engine) -> Batcher[Ready, Created]:
    return Batcher(engine.create_each, turns=GATHERING_TURNS, answers_each=True)


def _has_key(one: Ready) -> bool:
    """Then its insert may have to wait for another transaction with the same key."""
    return one.job.idempotency_key is not None


@asynccontextmanager
async def open_server(
    settings: Settings,
    *,
    lifecycles: Lifecycles,
    clock: Clock,
    ids: Ids,
    allow_local: bool,
    app: str = "",
    extensions: Iterable[Extension] = (),
    hooks: Hooks | None = None,
) -> AsyncIterator[ServerState]:
    """What a server process consists of, with everything that runs beside its answers."""
    async with AsyncExitStack() as stack:
        extensions = tuple(extensions)
        included: dict[str, Any] = {"extensions": extensions, "hooks": hooks}
        opened = await open_all(settings, lifecycles=lifecycles, clock=clock, ids=ids, app=app, **included)
        stack.push_async_callback(opened.close)
        engine = opened.engine
        loops = Loops(clock, ids)
        presence = await open_presence(settings, clock, ids, queues=None, loops=loops)
        stack.push_async_callback(presence.close)
        engine.ctx.wakers.append(by_queue(presence.heard))
        listeners = _listeners(opened.dispatch, presence, ids)
        rotation = Rotation(clock, ids)
        summaries, feed = Batcher(engine.reads.summaries, turns=GATHERING_TURNS), EventFeed(engine, clock)
        redis = open_redis(settings, engine, summaries, feed, clock, ids)
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
            SplitBatcher(_has_key, waiting=_creates(engine), others=_creates(engine)),
            summaries,
            Cursors(engine),
            feed,
            LongPoll(engine, presence, clock, ids, hinted=lambda: any(listener.up for listener in listeners)),
            HealthMonitor(engine, clock, folder_of(settings), tell=rotation.update),
            open_deliverer(engine, clock, ids, settings),
            loops=loops,
            retention=retention(settings),
            traces=traces() if settings.traces else None,
            redis=redis,
            dispatch=opened.dispatch,
            extension_routes=[route for each in extensions for route in each.routes],
            mounts=[one for each in extensions for one in each.mounts],
            about_scopes={scope: about for each in extensions for scope, about in each.scopes.items()},
            health_fields=[probe for each in extensions for probe in each.health_fields],
            extension_settings=lambda: [row for each in extensions for row in each.shown_settings()],
        )
        if extensions:
            server.metrics.adopt(storage_metrics.instruments)
        for extension in extensions:
            server.metrics.adopt(extension.metrics.values())
        maintenance = Maintainer(
            engine, clock, ids, every=settings.sweep_seconds, retention=retention(settings), rotation=rotation
        )
        worker_log = WorkerEventRecorder(engine, clock, ids)
        stack.push_async_callback(server.deliverer.close)
        beside: dict[str, Loop] = {
            "API key usage": server.auth.run,
            "event feed": server.feed.run,
            "long poll": server.long_poll.run,
            "health monitor": server.health.run,
            "webhook deliverer": server.deliverer.run,
            "queue metrics": server.queue_metrics.run,
            "worker events": worker_log.run,
            "maintenance": maintenance.run,
        }
        if extensions:
            beside["extension health"] = server.extension_health.run
            beside["extension maintenance"] = extension_maintenance(engine, clock, ids, extensions).run
        if redis is not None:
            stack.push_async_callback(redis.close)
            beside |= redis.loops
        if opened.dispatch is not None and not listeners:
            beside["broker probe"] = opened.dispatch.watch().run
        for listener in listeners:
            beside["broker listener"] = listener.run
        await stack.enter_async_context(loops.running(beside))
        yield server


def _listeners(dispatch: Dispatch | None, presence: Presence, ids: Ids) -> list[Listener]:
    """Each server hears every hint, for those who wait in it; from a queue that all share it must not take any."""
    if dispatch is None or dispatch.mode.shared:
        return []
    return [dispatch.listen(f"server-{ids.bits(64):016x}", presence.heard, busy=False)]


def open_deliverer(engine: Engine, clock: Clock, ids: Ids, settings: Settings) -> WebhookDeliverer:
    egress = Egress(hosts=settings.webhook_hosts, private=settings.unsafe_private_webhooks)
    alerts = AlertSettings(
        url=settings.alert_webhook_url,
        kinds=kinds_of(settings.alert_on),
        cooldown_seconds=settings.alert_rate_limit_seconds,
        timeout_seconds=settings.alert_webhook_timeout,
    )
    if alerts.url:
        egress.check(alerts.url, listed=False)  # better at the start than at the first alarm
    return WebhookDeliverer(engine, clock, ids, WebhookSender(egress), alerts)
