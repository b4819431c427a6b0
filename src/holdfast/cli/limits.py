"""`holdfast limits`: lists, sets and resets concurrency limits, rate limits and the weights of tenants."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.database import BY, on_engine
from holdfast.cli.output import Cell, Styled, camel_keys, print_json, print_result, print_table
from holdfast.cli.parser import command, group, list_command
from holdfast.model.limits import Limit, is_for_each_key, rate_text
from holdfast.redaction import printable

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.engine.admin.limits import LimitView

NAME_HELP = (
    "type:NAME, queue:NAME, tenant:NAME, key:TYPE (each key of a job type), 'key:TYPE KEY' (one key), or the name of a "
    "limit that jobs share, such as gpu"
)
PARTS = ("concurrency", "rate", "burst", "weight")


def add_to(commands: Any) -> None:
    verbs = group(commands, "limits", about="list, set and reset concurrency limits, rate limits and tenant weights")
    list_command(
        verbs, "limits", list_all, about="list limits: what is in force, the units in use, and who declared or set it"
    )
    _add_set(verbs)
    reset_it = command(
        verbs,
        "reset",
        reset,
        about="reset a limit to what the app declares; if it declares none, the limit is removed",
        more="The weight of a tenant becomes 1.",
        examples=["holdfast limits reset type:send_email", "holdfast limits reset 'key:crawl example.com'"],
    )
    _add_common(reset_it)


def _add_set(verbs: Any) -> None:
    parser = command(
        verbs,
        "set",
        set_it,
        about="set a limit at run time",
        more="It is in force from the next claim on, also for jobs that wait, and over what the app declares, until it "
        "is reset. What is not given stays as it is in force; the value `none` lifts that part.",
        examples=[
            "holdfast limits set type:send_email --concurrency 4      # at most 4 run at once",
            "holdfast limits set queue:mail --rate 600/min --burst 50 # 10 a second, up to 50 after a pause",
            "holdfast limits set key:crawl --rate 1/s                 # for each key of the job type crawl",
            "holdfast limits set 'key:crawl example.com' --rate 10/s  # for this key",
            "holdfast limits set gpu --concurrency none               # lift it",
            "holdfast limits set tenant:acme --weight 3               # three times the claims of other tenants",
        ],
    )
    _add_common(parser)
    parser.add_argument("--concurrency", metavar="N", help="units that running jobs may hold at once; 0 stops claims")
    parser.add_argument("--rate", metavar="RATE", help="units that may start in a time: 10/s, 600/min, 1/5s, 1000/h")
    parser.add_argument(
        "--burst", metavar="N", help="units that may start at once after a pause (one second of the rate)"
    )
    parser.add_argument("--weight", metavar="N", help="share of claims beside other tenants, 1 to 1000 (1)")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=NAME_HELP)
    parser.add_argument("--by", metavar="NAME", default=BY, help=f"who did it, for the audit log ({BY})")


@on_engine
async def list_all(engine: Engine, options: argparse.Namespace) -> None:
    limits = await engine.job_limits.all()
    if options.json:
        print_json({"limits": [_view(each) for each in limits]})
    else:
        titles: list[Cell] = ["limit", "at once", "in use", "rate", "burst", "weight", "source"]
        print_table(titles, map(_row, limits), droppable=["weight", "burst"])


@on_engine
async def set_it(engine: Engine, options: argparse.Namespace) -> None:
    given = {part: _value(part, text) for part in PARTS if (text := getattr(options, part)) is not None}
    view = await engine.job_limits.change(options.name, by=options.by, **given)
    _print_in_force(options, view)
    if note := await _unknown_type(engine, options.name):
        print(printable(note), file=sys.stderr)


@on_engine
async def reset(engine: Engine, options: argparse.Namespace) -> None:
    _print_in_force(options, await engine.job_limits.reset(options.name, by=options.by))


def _value(part: str, text: str) -> Any:
    """A number where it is one; the engine says what is wrong with anything else."""
    if text == "none":
        return None
    try:
        return float(text) if part in ("rate", "burst") else int(text)
    except ValueError:
        return text


def _print_in_force(options: argparse.Namespace, view: LimitView | None) -> None:
    if view is None:
        print_result(options, _nothing(options.name), f"there is no limit {options.name!r} any more")
    else:
        print_result(options, _view(view), f"limit {view.name!r}: {_in_force(view)}")


def _in_force(view: LimitView) -> str:
    """`4 at once, 10/s (burst 10), weight 3`."""
    parts = [view.limit.text or "no limit", "" if view.weight in (None, 1) else f"weight {view.weight}"]
    return ", ".join(filter(None, parts))


async def _unknown_type(engine: Engine, name: str) -> str | None:
    """A note on a job type that no app has declared: usually a typing error."""
    scope, _, about = name.partition(":")
    if scope not in ("type", "key"):
        return None
    known = await engine.reads.job_types()
    if about in known or (scope == "key" and any(about.startswith(f"{each} ") for each in known)):
        return None
    types = f"; there are {', '.join(sorted(known))}" if known else ""
    return f"note: no app has declared job type {about.partition(' ')[0] if scope == 'key' else about!r}{types}"


def _view(view: LimitView) -> dict[str, Any]:
    return {
        "name": view.name,
        **camel_keys(msgspec.structs.asdict(view.limit)),
        "weight": view.weight,
        "used": None if is_for_each_key(view.name) else view.used,
        "declared": None if view.declared is None else msgspec.structs.asdict(view.declared),
        "setBy": view.set_by,
        "updatedAt": view.updated_at,
    }


def _nothing(name: str) -> dict[str, Any]:
    empty = dict.fromkeys(("concurrency", "rate", "burst", "weight", "used", "declared", "setBy", "updatedAt"))
    return {"name": name, **empty}


def _row(view: LimitView) -> list[Cell]:
    limit = view.limit
    full = limit.concurrency is not None and view.used >= limit.concurrency
    used = "" if is_for_each_key(view.name) or limit == Limit() else f"{view.used}"
    return [
        view.name,
        "" if limit.concurrency is None else f"{limit.concurrency}",
        Styled(used, "yellow" if full else ""),
        "" if limit.rate is None else rate_text(limit.rate),
        "" if limit.burst is None else f"{limit.burst:g}",
        "" if view.weight is None else f"{view.weight}",
        _source(view),
    ]


def _source(view: LimitView) -> str:
    if view.updated_at is None:  # a weight alone
        return "set"
    if view.set_by is None:
        return "declared"
    return f"set by {view.set_by}" + (f", declared {view.declared.text}" if view.declared else "")
