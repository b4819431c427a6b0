"""The filter options that `jobs list`, `cancel`, `wake` and `redrive` share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.times import before, past
from holdfast.lifecycle import STATUS, State

if TYPE_CHECKING:
    from holdfast.engine import Engine, Filter

GIVEN = ("state", "status", "types", "queues", "tag", "subject", "parent_id", "error_code", "since", "until")


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        metavar="STATE,...",
        help=f"in one of these states: {', '.join(State)}, or a lifecycle's own state names",
    )
    parser.add_argument(
        "--status",
        metavar="STATUS,...",
        help=f"with one of these statuses: {', '.join(dict.fromkeys(STATUS.values()))}",
    )
    parser.add_argument("--type", dest="types", action="append", metavar="TYPE", help="of this type; can be repeated")
    parser.add_argument(
        "--queue", dest="queues", action="append", metavar="QUEUE", help="in this queue; can be repeated"
    )
    parser.add_argument("--tag", help="with this tag")
    parser.add_argument("--subject", help="with this subject")
    parser.add_argument("--parent", dest="parent_id", metavar="ID", help="children of this job")
    parser.add_argument("--error-code", metavar="CODE", help="with this reason for the state, such as an error code")
    for name, side in (("--since", "after"), ("--until", "before")):
        about = f"created {side} this time: a duration ago (30m, 1h, 2d) or an ISO time"
        parser.add_argument(name, type=past, metavar="WHEN", help=about)


def any_given(options: argparse.Namespace) -> bool:
    return any(getattr(options, name) is not None for name in GIVEN)


async def filter_of(engine: Engine, options: argparse.Namespace, states: tuple[State, ...] = ()) -> Filter:
    """The filter of the options; `states` is the default without --state and --status."""
    from holdfast.engine import Filter
    from holdfast.engine.reads.states import state_filter

    now = await engine.reads.now()
    return Filter(
        **state_filter(await engine.reads.lifecycles(), state=options.state, status=options.status, otherwise=states),
        types=options.types,
        queues=options.queues,
        tag=options.tag,
        subject=options.subject,
        parent_id=options.parent_id,
        created_after=before(now, options.since),
        created_before=before(now, options.until),
        error_code=options.error_code,
    )


def status_meant(options: argparse.Namespace) -> str | None:
    """A status that was given with --state: `--state failed` is a lifecycle's state name, not the status FAILED."""
    words = (options.state or "").split(",")
    return next((word.upper() for word in words if word.upper() in STATUS.values() and word not in list(State)), None)
