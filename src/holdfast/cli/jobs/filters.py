"""Which jobs: the filters that `list`, `cancel` and `redrive` share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.times import before, past
from holdfast.lifecycle import WORDS, State

if TYPE_CHECKING:
    from holdfast.engine import Engine, Filter

GIVEN = ("states", "types", "queues", "tag", "error_code", "since", "until")


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        "--status",
        dest="states",
        type=_states,
        action="extend",
        metavar="STATE,...",
        help=f"in one of these states: {', '.join(WORDS)}",
    )
    parser.add_argument("--type", dest="types", action="append", metavar="TYPE", help="of this type; may be repeated")
    parser.add_argument(
        "--queue", dest="queues", action="append", metavar="QUEUE", help="in this queue; may be repeated"
    )
    parser.add_argument("--tag", help="with this tag")
    parser.add_argument("--error-code", metavar="CODE", help="whose state has this reason, such as an error code")
    parser.add_argument(
        "--since", type=past, metavar="WHEN", help="created since so long ago (30m, 1h, 2d) or an ISO time"
    )
    parser.add_argument(
        "--until", type=past, metavar="WHEN", help="created before so long ago (30m, 1h, 2d) or an ISO time"
    )


def _states(text: str) -> list[State]:
    found: list[State] = []
    for word in text.split(","):
        if word.lower() not in WORDS:
            raise argparse.ArgumentTypeError(f"{word!r} is no state; there are: {', '.join(WORDS)}")
        found += WORDS[word.lower()]
    return found


def any_given(options: argparse.Namespace) -> bool:
    return any(getattr(options, name) is not None for name in GIVEN)


async def filter_of(engine: Engine, options: argparse.Namespace, states: tuple[State, ...] = ()) -> Filter:
    """What was asked for; `states` where nothing was said about them."""
    from holdfast.engine import Filter

    now = await engine.now()
    wanted = options.states or states
    return Filter(
        states=sorted({state.value for state in wanted}) if wanted else None,
        types=options.types,
        queues=options.queues,
        tag=options.tag,
        created_after=before(now, options.since),
        created_before=before(now, options.until),
        error_code=options.error_code,
    )
