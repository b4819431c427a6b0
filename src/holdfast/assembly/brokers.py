"""Opens the broker that the settings name. Invalid settings are an error; a broker that is unreachable is not."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.dispatch.broker import Broker
from holdfast.dispatch.dispatch import Dispatch
from holdfast.dispatch.optional import require
from holdfast.dispatch.sender import Wake
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.settings import Settings


def open_dispatch(settings: Settings, clock: Clock, ids: Ids, by_database: Wake | None) -> Dispatch | None:
    """None: hints are sent through the database alone."""
    if settings.dispatch == "database":
        return None
    return Dispatch(
        settings.dispatch, lambda kind: open_broker(settings, kind, clock, ids), clock, ids, by_database=by_database
    )


def open_broker(settings: Settings, kind: str | None, clock: Clock, ids: Ids) -> Broker:
    """Does not connect yet. `kind`: the workers that it receives hints for; None: it only sends."""
    if settings.dispatch == "sqs":
        return _sqs(settings)
    return _nats(settings, kind) if settings.dispatch == "nats" else _redis(settings, kind, clock, ids)


def _redis(settings: Settings, kind: str | None, clock: Clock, ids: Ids) -> Broker:
    _require(settings, "redis", library="redis", url=settings.redis_url)
    from holdfast.dispatch.redis import RedisBroker

    try:
        return RedisBroker(settings.redis_url, kind, clock, ids)
    except (ValueError, TypeError):  # TypeError: an unknown option in the URL
        raise _invalid_url("redis", "redis://HOST:PORT/0") from None


def _nats(settings: Settings, kind: str | None) -> Broker:
    _require(settings, "nats", library="nats", url=settings.nats_url)
    from holdfast.dispatch.nats import NatsBroker

    try:
        return NatsBroker(settings.nats_url, kind)
    except ValueError:
        raise _invalid_url("nats", "nats://HOST:PORT") from None


def _sqs(settings: Settings) -> Broker:
    _require(settings, "sqs", library="aiobotocore")
    from holdfast.dispatch.sqs import SqsBroker

    return SqsBroker(settings.sqs_queue, settings.sqs_endpoint_url)


def _require(settings: Settings, extra: str, *, library: str, url: str | None = None) -> None:
    if url == "":
        raise Invalid(
            f"HOLDFAST_DISPATCH={settings.dispatch} needs HOLDFAST_{extra.upper()}_URL; set it, or choose another",
            code="invalid_setting",
        )
    require(library, extra=extra, who=f"HOLDFAST_DISPATCH={settings.dispatch}")


def _invalid_url(extra: str, example: str) -> Invalid:
    """Without the URL itself: it may contain a password."""
    return Invalid(f"HOLDFAST_{extra.upper()}_URL is not a valid URL; write it like {example}", code="invalid_setting")
