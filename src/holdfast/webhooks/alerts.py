"""Alerts as their receivers want them: Slack, Discord, or whoever takes JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.webhooks.alerts import KINDS
from holdfast.errors import UnknownName
from holdfast.net import Target

DISCORD_MAX = 2000


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where alerts go, which ones, how often. Nowhere, unless a URL says where."""

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


def shaped(body: str, target: Target) -> bytes:
    """The alert in the form that its receiver takes."""
    said = msgspec.json.decode(body)
    return msgspec.json.encode(_form(said, target))


def _form(said: dict[str, Any], target: Target) -> dict[str, Any]:
    path = target.path.partition("?")[0]
    if target.host == "hooks.slack.com" or path.endswith("/slack"):
        return {"text": _for_slack(said["message"])}
    if target.host in ("discord.com", "discordapp.com") and path.startswith("/api/webhooks/"):
        # A job type may be called @everyone.
        return {"content": said["message"][:DISCORD_MAX], "allowed_mentions": {"parse": []}}
    return said


def _for_slack(text: str) -> str:
    """The three characters that mean something there."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
