"""What the routes of one server process share."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from holdfast.batches import Batches
from holdfast.clock import Clock
from holdfast.engine import Created, Engine
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.server.auth import Auth
from holdfast.server.feed import Feed
from holdfast.server.pulse import Pulse
from holdfast.server.room import Room
from holdfast.settings import Settings


@dataclass
class Server:
    """No state that another server would need: any number of them may stand before one database."""

    engine: Engine
    clock: Clock
    ids: Ids
    settings: Settings
    auth: Auth
    creates: Batches[NewJob, Created]
    feed: Feed
    room: Room
    pulse: Pulse
    _requests: count[int] = field(default_factory=count)
    _prefix: str = ""

    def __post_init__(self) -> None:
        self._prefix = f"{self.ids.bits(48):012x}"

    def request_id(self) -> str:
        return f"{self._prefix}-{next(self._requests):x}"
