"""`holdfast keys`: who may come in over HTTP, as whom, and for how long."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.cli.app_option import named_app
from holdfast.cli.database import BY, with_engine
from holdfast.cli.ids import ambiguous, begins
from holdfast.cli.key_file import add_key_file, handed_over, refuse_taken
from holdfast.cli.output import Cell, Styled, camel_keys, print_json, print_table, time_text
from holdfast.cli.parser import command, group, names
from holdfast.cli.times import seconds
from holdfast.cli.workers import find_worker
from holdfast.model.key import SCOPES, Key, Kind, NewKey, Scope, check_against, extension_of, parse

if TYPE_CHECKING:
    from holdfast.engine import Engine

STYLES = {"live": "green", "expired": "dim", "revoked": "red"}
OVERLAP = 86_400.0


def add_to(commands: Any) -> None:
    verbs = group(commands, "keys", about="create, list, rotate and revoke the keys that servers ask for")
    _add_create(verbs)
    command(
        verbs,
        "list",
        list_all,
        about="list every key ever made: whose it is, what it may do, and whether it is still good",
        examples=["holdfast keys list", "holdfast keys list --json"],
    )
    rotating = command(
        verbs,
        "rotate",
        rotate,
        about="make a key with the same rights as another, which then has a while left",
        examples=["holdfast keys rotate 5f1c8a2e90b7d346 --overlap 7d --key-file shop.key"],
    )
    _add_key(rotating)
    rotating.add_argument(
        "--overlap", metavar="TIME", type=seconds, default=OVERLAP, help="how long the old key stays good (1d)"
    )
    add_key_file(rotating)
    revoking = command(
        verbs,
        "revoke",
        revoke,
        about="take a key back: within seconds no server lets it in",
        examples=["holdfast keys revoke 5f1c8a2e90b7d346"],
    )
    _add_key(revoking)


def _add_create(verbs: Any) -> None:
    parser = command(
        verbs,
        "create",
        create,
        about="make a key and show it, this once",
        more="A client's key hands in, reads and cancels jobs of its tenant; an admin's key only looks, unless "
        "--scopes says more; a worker's key belongs to a registered worker.",
        examples=[
            "holdfast keys create --name shop --tenant acme --key-file shop.key",
            "holdfast keys create --kind admin --scopes admin:read,admin:operate --expires-in 30d",
            "holdfast keys create --subject alice --scopes jobs:read,images:write --key-file alice.key",
            "holdfast keys create --kind worker --worker encoder-1 --queues video",
        ],
    )
    parser.add_argument("--kind", choices=[*Kind], default=Kind.CLIENT, help="whose key it is (client)")
    parser.add_argument("--name", help="what people call it")
    parser.add_argument("--tenant", default="default", help="whose jobs it is about (default)")
    parser.add_argument("--subject", metavar="USER", help="the user it stands for, as extensions see it (its own id)")
    parser.add_argument(
        "--scopes",
        metavar="SCOPE,...",
        type=names,
        help=f"what it may do, of: {', '.join(_choosable())}, and NAME:verb of extensions",
    )
    parser.add_argument("--worker", metavar="WORKER", help="the worker that a worker's key belongs to")
    parser.add_argument("--queues", metavar="NAME,...", type=names, help="bind a worker's key to these queues")
    parser.add_argument(
        "--expires-in", metavar="TIME", type=seconds, help="how long it is good, such as 90d (for ever)"
    )
    parser.add_argument("--rate", metavar="N", type=float, help="how many requests a second it may send")
    add_key_file(parser)


def _choosable() -> list[Scope]:
    return [*SCOPES[Kind.CLIENT], *SCOPES[Kind.ADMIN]]


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="its id, the beginning of its id, or the whole key")


def create(options: argparse.Namespace) -> int:
    strange = check_against(options.scopes or (), _scopes_of_app(options))

    async def work(engine: Engine) -> int:
        worker = await find_worker(engine, options.worker) if options.worker is not None else None
        new = NewKey(
            kind=Kind(options.kind),
            tenant=options.tenant,
            name=options.name,
            subject=options.subject,
            scopes=options.scopes,
            queues=options.queues,
            worker_id=worker.id if worker else None,
            expires_in=options.expires_in,
            rate_per_second=options.rate,
        )
        refuse_taken(options.key_file)
        key, text = await engine.keys.create(new, by=BY)
        _hand_over(options, key, text, await engine.reads.now())
        for extension in sorted({f"{extension_of(scope)}" for scope in strange}):
            print(f"only servers that have the extension {extension} ask for its scopes", file=sys.stderr)
        return 0

    return with_engine(options, work, may_be_first=True)


def _scopes_of_app(options: argparse.Namespace) -> dict[str, Collection[str]]:
    """Of each extension of the app that `--app` names."""
    if (app := named_app(options)) is None:
        return {}
    from holdfast.server.extensions.routes import scopes_of

    found: dict[str, Collection[str]] = dict.fromkeys(app.extensions, ())
    for each in app.extensions.values():
        found |= scopes_of([*each.routes, *each.mounts], each.scopes)
    return found


def rotate(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        old = await _id_of(engine, options.key)
        refuse_taken(options.key_file)
        key, text = await engine.keys.rotate(old, overlap_seconds=options.overlap, by=BY)
        _hand_over(options, key, text, await engine.reads.now())
        print(f"key {old} is good until {time_text((await engine.keys.get(old)).expires_at)}", file=sys.stderr)
        return 0

    return with_engine(options, work)


def _hand_over(options: argparse.Namespace, key: Key, text: str, now: datetime) -> None:
    if options.json:
        print_json({**_view(key, now), **handed_over(text, options.key_file)})
        return
    for shown in handed_over(text, options.key_file).values():
        print(shown)
    where = f"is in {options.key_file}" if options.key_file else "is shown only now"
    whose = f" for {key.subject}" if key.subject is not None else ""
    print(f"key {key.id} of tenant {key.tenant}{whose} may {', '.join(_rights(key))}; it {where}", file=sys.stderr)


def list_all(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        keys, now = await engine.keys.all(), await engine.reads.now()
        if options.json:
            print_json({"keys": [_view(key, now) for key in keys]})
        else:
            titles = ["key", "kind", "tenant", "name", "subject", "status", "made", "expires", "used", "may"]
            print_table(titles, (_row(key, now) for key in keys), droppable=["made", "kind", "subject"])
        return 0

    return with_engine(options, work)


def _row(key: Key, now: datetime) -> list[Cell]:
    status = key.status(now)
    return [
        *(key.id, key.kind, key.tenant, key.name or "", key.subject or "", Styled(status, STYLES[status])),
        *(_day(at) for at in (key.created_at, key.expires_at, key.used_at)),
        ", ".join(_rights(key)),
    ]


def _day(at: datetime | None) -> Styled:
    return Styled(time_text(at), short=time_text(at)[:10])


def _rights(key: Key) -> list[str]:
    bound = f" (queues {', '.join(key.queues)})" if key.queues else ""
    return [f"{scope}{bound}" for scope in sorted(key.scopes)]


def _view(key: Key, now: datetime) -> dict[str, Any]:
    fields = camel_keys(asdict(key))
    return {"keyId": fields.pop("id"), **fields, "scopes": sorted(key.scopes), "status": key.status(now)}


def revoke(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        key = await engine.keys.revoke(await _id_of(engine, options.key), by=BY)
        if options.json:
            print_json(_view(key, await engine.reads.now()))
        else:
            print(f"key {key.id} is revoked")
        return 0

    return with_engine(options, work)


async def _id_of(engine: Engine, typed: str) -> str:
    """Of a whole key, as somebody finds it lying about; or of the id that begins so."""
    if (found := parse(typed.encode(errors="replace"))) is not None:
        return found.id
    known = [key.id for key in await engine.keys.all()]
    fitting = [typed] if typed in known else [key_id for key_id in known if begins(key_id, typed)]
    if len(fitting) > 1:
        raise ambiguous("key", typed, fitting)
    return fitting[0] if fitting else typed
