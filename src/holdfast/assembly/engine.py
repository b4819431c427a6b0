"""Opens an engine from the settings: store, policies, hints and logging."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.assembly.brokers import open_dispatch
from holdfast.batching import Batcher
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch
from holdfast.engine import Created, Engine, EngineLimits, Retention
from holdfast.engine.hooks.hooks import Hooks
from holdfast.engine.policy_settings import PolicySettings
from holdfast.errors import StoreError
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.maintenance.maintainer import ExtensionMaintainer
from holdfast.model import NewJob
from holdfast.model.limits import NO_KEY_FUNCTIONS, KeyFunctions, Limit
from holdfast.observe.logs import job_lines
from holdfast.observe.transition_log import TransitionLog
from holdfast.settings import Settings, load, migrate_command
from holdfast.store import PostgresStore, SqliteStore, open_store
from holdfast.store.notify import Notifier, hint_sender, queue_waker
from holdfast.store.result_signals import result_signals
from holdfast.store.wake_sockets import WakeSender

if TYPE_CHECKING:
    from holdfast.extend import Extension  # imports a web server, which a heartbeat process does not need

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AppParts:
    """What an engine and a server take from an app; without an app, the defaults.

    `reference`: of the app that names the database, if one does: an error then says how to migrate it.
    """

    lifecycles: Lifecycles = field(default_factory=Lifecycles)
    clock: Clock = field(default_factory=Clock)
    ids: Ids = field(default_factory=Ids)
    reference: str = ""
    extensions: tuple[Extension, ...] = ()
    hooks: Hooks | None = None  # of the extensions
    key_functions: Callable[[str], KeyFunctions] = lambda _: NO_KEY_FUNCTIONS  # by job type
    named_limits: Mapping[str, Limit] = field(default_factory=dict)
    job_scopes: Mapping[str, str] = field(default_factory=dict)  # that creating a job over HTTP needs, by job type
    caller_fields: Mapping[str, str] = field(default_factory=dict)  # of payloads, filled over HTTP, by job type


async def open_engine(
    settings: Settings | None = None,
    *,
    lifecycles: Lifecycles | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Engine:
    """An engine without an app."""
    parts = AppParts(lifecycles=lifecycles or Lifecycles(), clock=clock or Clock(), ids=ids or Ids())
    return await open_app_engine(settings or load(), parts)


async def open_app_engine(settings: Settings, app: AppParts) -> Engine:
    policies = policy_settings(settings)
    migrate = migrate_command(settings, app.reference, has_tables=bool(app.extensions))
    all_are_ours = policies.are_of(app.lifecycles)
    if all_are_ours:
        policies.check(app.lifecycles)
    engine = Engine(
        await open_store(settings.url, app.clock, app.ids, migrate=migrate, extensions=app.extensions),
        lifecycles=app.lifecycles,
        clock=app.clock,
        ids=app.ids,
        hooks=app.hooks,
        limits=EngineLimits(
            sweep_seconds=settings.sweep_seconds,
            startup_grace_seconds=settings.startup_grace_seconds,
            accept_orphans_seconds=settings.accept_orphans_seconds,
            error_max_chars=settings.error_max_chars,
            worker_json_bytes_max=settings.worker_json_max_bytes,
            hook_seconds=settings.hook_timeout_seconds,
            ageing_seconds=settings.priority_ageing_seconds,
        ),
        policy_settings=policies,
    )
    engine.ctx.registry.key_functions, engine.ctx.registry.named_limits = app.key_functions, app.named_limits
    if (log := job_lines()) is not None:
        engine.ctx.observers.append(TransitionLog(log, engine.ctx.lifecycles))
    if not all_are_ours:
        await _check_all(policies, engine)
    with suppress(StoreError):  # maintenance retries it; the first use of the engine reports the error
        await engine.maintenance.rebase_event_log()
    return engine


async def _check_all(policies: PolicySettings, engine: Engine) -> None:
    """Checks settings for lifecycles that this app does not declare: another app may."""
    try:
        policies.check(await engine.reads.lifecycles())
    except BaseException:
        await engine.close()
        raise


def policy_settings(settings: Settings) -> PolicySettings:
    return PolicySettings(
        {knob: getattr(settings, name) for knob, name in _POLICY.items()},
        frozenset(knob for knob, name in _POLICY.items() if name in settings.explicit),
        settings.lifecycles,
    )


# The fields of a policy that have a setting, and the setting's name.
_POLICY = {
    "lease_seconds": "lease_seconds",
    "heartbeat_seconds": "heartbeat_seconds",
    "max_attempts": "max_attempts",
    "backoff_base_seconds": "backoff_base",
    "backoff_factor": "backoff_factor",
    "backoff_cap_seconds": "backoff_cap",
    "backoff_jitter": "backoff_jitter",
    "no_progress_seconds": "no_progress_seconds",
    "max_runtime_seconds": "max_runtime_seconds",
    "keep_completed_parts": "keep_completed_parts",
    "discard_partial_parts": "discard_partial_parts",
    "idempotency_window_seconds": "idempotency_ttl",
    "offline_seconds": "worker_offline_seconds",
}


@dataclass
class OpenEngine:
    """An engine, what sends its hints, and a batcher with which concurrent callers share a commit."""

    engine: Engine
    creates: Batcher[NewJob, Created]
    declared: set[str] = field(default_factory=set)
    notifier: Notifier | WakeSender | None = None
    dispatch: Dispatch | None = None

    async def close(self) -> None:
        await self.send_hints()
        await self.engine.close()

    async def send_hints(self) -> None:
        """Send the hints that are still pending, and no more after that."""
        self.engine.flush_hints()
        if self.dispatch is not None:
            await self.dispatch.close()
        if self.notifier is not None:
            await self.notifier.close()
        await self.engine.results.close()

    def abandon(self) -> None:
        """Its event loop does not run, or cannot wait: close the sockets and send nothing more."""
        if self.engine.ctx.later is not None:
            self.engine.ctx.later.drop()
        if self.notifier is not None:
            self.notifier.drop()
        if self.engine.results.signals is not None:
            self.engine.results.signals.drop()
        if isinstance(self.engine.store, PostgresStore):
            self.engine.store.abandon()

    async def discard(self) -> None:
        """Its event loop has ended without `close`: its sockets are closed, the threads of a SQLite store are not."""
        if isinstance(self.engine.store, SqliteStore):
            await self.engine.close()


async def open_all(settings: Settings, app: AppParts) -> OpenEngine:
    engine = await open_app_engine(settings, app)
    notifier = hint_sender(engine.store, app.clock)
    by_database = queue_waker(notifier)
    try:
        dispatch = open_dispatch(settings, app.clock, app.ids, by_database)
    except BaseException:
        await engine.close()
        raise
    engine.ctx.wakers.append(by_database if dispatch is None else dispatch.sender)
    engine.results.signals = result_signals(engine.store, settings.url, app.clock, app.ids)
    return OpenEngine(engine, Batcher(engine.create_gathered), notifier=notifier, dispatch=dispatch)


async def start_extensions(extensions: Iterable[Extension]) -> None:
    for extension in extensions:
        await extension.start()


def extension_maintenance(
    engine: Engine, clock: Clock, ids: Ids, extensions: Iterable[Extension]
) -> ExtensionMaintainer:
    return ExtensionMaintainer(engine, clock, ids, [task for each in extensions for task in each.tasks])


def retention(settings: Settings) -> Retention:
    """How long finished jobs are kept before `prune` deletes them; without a setting, for ever."""
    return Retention(
        succeeded=settings.retain_succeeded_seconds,
        dead=settings.retain_dead_seconds,
        canceled=settings.retain_canceled_seconds,
        rejected=settings.retain_rejected_seconds,
        attempts=settings.retain_attempts_seconds,
    )
