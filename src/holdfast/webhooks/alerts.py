"""Alert settings, and the alert body for Slack, Discord or a JSON receiver."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.webhooks.alerts import KINDS
from holdfast.errors import UnknownName
from holdfast.net import Target

DISCORD_MAX = 2000


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Destination, kinds and cooldown of alerts. Without a URL none are sent."""

    url: str = ""
    kinds: frozenset[str] = frozenset()
    cooldown_seconds: float = 300
    timeout_seconds: float = 10


def kinds_of(listed: str) -> frozenset[str]:
    """`"stale_job_recovered, worker_startup"`."""
    kinds = [kind.strip() for kind in listed.split(",") if kind.strip()]
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName.of("alert", kind, list(KINDS))
    return frozenset(kinds)


def formatted(body: str, target: Target) -> bytes:
    """The alert in the format of its receiver."""
    return msgspec.json.encode(_for_receiver(msgspec.json.decode(body), target))


def _for_receiver(alert: dict[str, Any], target: Target) -> dict[str, Any]:
    path = target.path.partition("?")[0]
    if target.host == "hooks.slack.com" or path.endswith("/slack"):
        return {"text": _for_slack(alert["message"])}
    if target.host in ("discord.com", "discordapp.com") and path.startswith("/api/webhooks/"):
        # A job type may be named @everyone.
        return {"content": alert["message"][:DISCORD_MAX], "allowed_mentions": {"parse": []}}
    return alert


def _for_slack(text: str) -> str:
    """Escape the three characters that Slack interprets."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
