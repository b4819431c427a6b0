"""`holdfast doctor`: checks the broker, if the settings name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.doctor.finding import Finding, fail, ok, warn
from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.ids import Ids

if TYPE_CHECKING:
    from holdfast.settings import Settings


async def examine(settings: Settings) -> list[Finding]:
    """An unreachable broker is a warning: jobs run without it."""
    if settings.dispatch == "database":
        return []
    from holdfast.assembly.brokers import open_broker
    from holdfast.dispatch.broker import BrokerError

    try:
        broker = open_broker(settings, None, Clock(), Ids())
    except HoldfastError as error:  # no process starts with this setting
        return [fail("broker", error.message)]
    try:
        await broker.open()
    except BrokerError as error:
        return [warn("broker", str(error), "hints go through the database until it is reachable")]
    finally:
        await broker.close()
    return [ok("broker", f"{settings.dispatch} is reachable")]
