"""`holdfast keys`: creates, lists, rotates and revokes API keys."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.cli.app_option import named_app
from holdfast.cli.database import BY, on_engine, with_engine
from holdfast.cli.ids import ambiguous, is_prefix
from holdfast.cli.key_file import add_key_file, require_new_file, written_key
from holdfast.cli.output import Cell, Styled, camel_keys, print_json, print_result, print_table, time_text
from holdfast.cli.parser import command, group, list_command, names
from holdfast.cli.times import seconds
from holdfast.cli.workers import find_worker
from holdfast.model.key import SCOPES, Key, Kind, NewKey, check_against, extension_of, parse

if TYPE_CHECKING:
    from holdfast.engine import Engine

STYLES = {"live": "green", "expired": "dim", "revoked": "red"}
OVERLAP = 86_400.0


def add_to(commands: Any) -> None:
    verbs = group(commands, "keys", about="create, list, rotate and revoke API keys")
    _add_create(verbs)
    list_command(
        verbs, "keys", list_all, about="list all keys: owner, scopes and status, including expired and revoked ones"
    )
    rotating = command(
        verbs,
        "rotate",
        rotate,
        about="rotate a key: issue a replacement; the old key expires after the overlap",
        examples=["holdfast keys rotate 5f1c8a2e90b7d346 --overlap 7d --key-file shop.key"],
    )
    _add_key(rotating)
    rotating.add_argument(
        "--overlap", metavar="TIME", type=seconds, default=OVERLAP, help="how long the old key remains valid (1d)"
    )
    add_key_file(rotating)
    revoking = command(
        verbs,
        "revoke",
        revoke,
        about="revoke a key: all servers reject it within seconds",
        examples=["holdfast keys revoke 5f1c8a2e90b7d346"],
    )
    _add_key(revoking)


def _add_create(verbs: Any) -> None:
    parser = command(
        verbs,
        "create",
        create,
        about="create a key and print it; it cannot be shown again",
        more="A client key creates, reads and cancels jobs of its tenant. An admin key is read-only unless --scopes "
        "adds more. A worker key belongs to a registered worker.",
        examples=[
            "holdfast keys create --name shop --tenant acme --key-file shop.key",
            "holdfast keys create --kind admin --scopes admin:read,admin:operate --expires-in 30d",
            "holdfast keys create --subject alice --scopes jobs:read,images:write --key-file alice.key",
            "holdfast keys create --kind worker --worker encoder-1 --queues video",
        ],
        may_be_first=True,
    )
    parser.add_argument("--kind", choices=[*Kind], default=Kind.CLIENT, help="kind of key (client)")
    parser.add_argument("--name", help="display name")
    parser.add_argument("--tenant", default="default", help="tenant that the key belongs to (default)")
    parser.add_argument(
        "--subject", metavar="USER", help="user that the key acts for, as extensions see it (default: the key's id)"
    )
    parser.add_argument(
        "--scopes",
        metavar="SCOPE,...",
        type=names,
        help=f"permissions: {', '.join([*SCOPES[Kind.CLIENT], *SCOPES[Kind.ADMIN]])}, and NAME:verb of extensions",
    )
    parser.add_argument("--worker", metavar="WORKER", help="worker that a worker key belongs to")
    parser.add_argument("--queues", metavar="NAME,...", type=names, help="restrict a worker key to these queues")
    parser.add_argument(
        "--expires-in", metavar="TIME", type=seconds, help="expire after this time, such as 90d (default: never)"
    )
    parser.add_argument("--rate", metavar="N", type=float, help="rate limit in requests per second")
    add_key_file(parser)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="key id, a prefix of it, or the complete key")


def create(options: argparse.Namespace) -> int:
    unknown = check_against(options.scopes or (), _scopes_of_app(options))
    with_engine(options, lambda engine: _create(engine, options))
    for extension in sorted({f"{extension_of(scope)}" for scope in unknown}):
        print(f"only servers with the extension {extension} check its scopes", file=sys.stderr)
    return 0


async def _create(engine: Engine, options: argparse.Namespace) -> None:
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
    require_new_file(options.key_file)
    key, text = await engine.keys.create(new, by=BY)
    _print_key(options, key, text, await engine.reads.now())


def _scopes_of_app(options: argparse.Namespace) -> dict[str, Collection[str]]:
    """The scopes of each extension of the app that `--app` names."""
    if (app := named_app(options)) is None:
        return {}
    from holdfast.server.extensions.routes import scopes_of

    found: dict[str, Collection[str]] = dict.fromkeys(app.extensions, ())
    for each in app.extensions.values():
        found |= scopes_of([*each.routes, *each.mounts], each.scopes)
    return found


@on_engine
async def rotate(engine: Engine, options: argparse.Namespace) -> None:
    old = await _id_of(engine, options.key)
    require_new_file(options.key_file)
    key, text = await engine.keys.rotate(old, overlap_seconds=options.overlap, by=BY)
    _print_key(options, key, text, await engine.reads.now())
    print(f"key {old} expires at {time_text((await engine.keys.get(old)).expires_at)}", file=sys.stderr)


def _print_key(options: argparse.Namespace, key: Key, text: str, now: datetime) -> None:
    if options.json:
        print_json({**_view(key, now), **written_key(text, options.key_file)})
        return
    for shown in written_key(text, options.key_file).values():
        print(shown)
    where = f"is in {options.key_file}" if options.key_file else "cannot be shown again"
    whose = f" for {key.subject}" if key.subject is not None else ""
    print(f"key {key.id} of tenant {key.tenant}{whose} may {', '.join(_rights(key))}; it {where}", file=sys.stderr)


@on_engine
async def list_all(engine: Engine, options: argparse.Namespace) -> None:
    keys, now = await engine.keys.all(), await engine.reads.now()
    if options.json:
        print_json({"keys": [_view(key, now) for key in keys]})
    else:
        titles = ["key", "kind", "tenant", "name", "subject", "status", "made", "expires", "used", "may"]
        print_table(titles, (_row(key, now) for key in keys), droppable=["made", "kind", "subject"])


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


@on_engine
async def revoke(engine: Engine, options: argparse.Namespace) -> None:
    key = await engine.keys.revoke(await _id_of(engine, options.key), by=BY)
    print_result(options, _view(key, await engine.reads.now()), f"key {key.id} is revoked")


async def _id_of(engine: Engine, typed: str) -> str:
    """The id of a complete key, or the key id with this prefix."""
    if (found := parse(typed.encode(errors="replace"))) is not None:
        return found.id
    known = [key.id for key in await engine.keys.all()]
    fitting = [typed] if typed in known else [key_id for key_id in known if is_prefix(key_id, typed)]
    if len(fitting) > 1:
        raise ambiguous("key", typed, fitting)
    return fitting[0] if fitting else typed
