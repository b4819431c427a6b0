"""`engine.polls`: cheap questions that workers, servers and maintenance ask about once a second."""

from __future__ import annotations

from holdfast.engine.component import Component, reading
from holdfast.engine.leases import leases_of
from holdfast.engine.polls import claimable as _claimable
from holdfast.engine.polls import due_work as _due_work
from holdfast.engine.polls import open_work as _open_work


class Polls(Component):
    """Each is one read; what it finds is only a hint for the verb that follows."""

    poll = reading(_claimable.poll)
    to_stop = reading(_claimable.to_stop)
    held_by = reading(_claimable.held_by)
    leases = reading(leases_of)
    open_work = reading(_open_work.open_work)
    claimants = reading(_open_work.claimants)
    claiming_instances = reading(_claimable.claiming_instances)
    instances = reading(_claimable.instances)
    due_work = reading(_due_work.due_work)
