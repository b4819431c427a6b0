"""Days and months of the quota, in the time zone of the settings, and how long a repeated request is the same one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.workloads.generation.extension import ext


class Period(NamedTuple):
    day: str
    month: str
    next_day: datetime
    next_month: datetime


def period_at(now: datetime) -> Period:
    local = now.astimezone(ext.settings.zone())
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    next_day = (midnight + timedelta(days=1)).replace(fold=0)
    next_month = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return Period(f"{local:%Y-%m-%d}", f"{local:%Y-%m}", next_day, next_month)


def same_for_seconds(now: datetime) -> int:
    """Until the end of the next minute: a repeat in the minute of a request, or in the one after it, is the same. In
    whole seconds, less than one too many: each number of seconds is a stored policy of its own."""
    return 120 - now.second
