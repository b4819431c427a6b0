"""`holdfast workers`: lists, registers, disables, enables and revokes workers."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.cli.database import BY, on_engine
from holdfast.cli.ids import ambiguous, is_prefix
from holdfast.cli.key_file import add_key_file, require_new_file, written_key
from holdfast.cli.output import Cell, Styled, age_text, camel_keys, count, print_json, print_result, print_table
from holdfast.cli.parser import command, group, list_command, names
from holdfast.errors import Conflict, NotFound
from holdfast.model import WorkerRecord

if TYPE_CHECKING:
    from holdfast.engine import Engine

STYLES = {"disabled": "red", "offline": "dim", "busy": "cyan", "idle": "green", "active": "green"}

TITLES: list[Cell] = [
    *(
        "worker",
        "name",
        "kind",
        "status",
        "leases",
        "slots",
        Styled("last heartbeat", short="heartbeat"),
        "host",
        "pid",
    ),
    *("capabilities", "job types"),
]


def add_to(commands: Any) -> None:
    verbs = group(commands, "workers", about="list, register, disable, enable and revoke workers")
    list_command(
        verbs, "workers", list_all, about="list registered workers: status, jobs held, capabilities and job types"
    )
    _add_register(verbs)
    for name, run, about in (
        ("disable", switch, "disable a worker: it claims no more jobs, and may finish those it holds"),
        ("enable", switch, "enable a disabled worker"),
        ("revoke", revoke, "disable a worker and revoke its keys; its jobs are requeued when their leases expire"),
    ):
        one = command(verbs, name, run, about=about, examples=[f"holdfast workers {name} encoder-1"])
        one.add_argument("worker", metavar="WORKER", help="worker id, a prefix of it, or the name if it is unique")
        one.set_defaults(enable=name == "enable")


def _add_register(verbs: Any) -> None:
    parser = command(
        verbs,
        "register",
        register,
        about="register a remote worker and print its id and its key, which cannot be shown again",
        more="A worker that connects to the database registers itself; this is for workers that use the HTTP API.",
        examples=[
            "holdfast workers register --name encoder-1 --capability gpu --capability codecs=h264,vp9",
            "holdfast workers register --name mailer --queues mail --key-file mailer.key",
        ],
        may_be_first=True,
    )
    parser.add_argument("--name", help="display name")
    parser.add_argument("--kind", default="remote", help="kind of worker (remote)")
    parser.add_argument("--slots", type=int, metavar="N", help="number of jobs it runs at once")
    parser.add_argument(
        "--capability",
        dest="capabilities",
        metavar="NAME[=VALUE,...]",
        type=_capability,
        action="append",
        default=[],
        help="capability that jobs can require; can be repeated",
    )
    parser.add_argument("--tenants", metavar="NAME,...", type=names, help="claim only jobs of these tenants")
    parser.add_argument("--queues", metavar="NAME,...", type=names, help="restrict its key to these queues")
    add_key_file(parser)


def _capability(text: str) -> tuple[str, Any]:
    """`gpu` offers gpu; `codecs=h264,vp9` offers codecs, codecs:h264 and codecs:vp9."""
    name, given, values = text.partition("=")
    return name, values.split(",") if given else True


@on_engine
async def list_all(engine: Engine, options: argparse.Namespace) -> None:
    workers, held = await engine.workers.all(), await engine.workers.holds()
    if options.json:
        print_json({"workers": [_view(worker, held) for worker in workers]})
    else:
        now = await engine.reads.now()
        rows = (_row(worker, held, now) for worker in workers)
        print_table(TITLES, rows, droppable=["capabilities", "kind", "slots"])


def _row(worker: WorkerRecord, held: dict[str, int], now: datetime) -> list[Cell]:
    types = worker.job_types
    return [
        worker.id,
        worker.name or "",
        worker.kind,
        Styled(worker.status, STYLES[worker.status]),
        f"{held.get(worker.id, 0)}",
        "" if worker.slots is None else f"{worker.slots}",
        f"{age_text(now, worker.last_heartbeat_at)} ago" if worker.last_heartbeat_at else "never",
        _host(_metadata(worker, "host")),
        _metadata(worker, "pid"),
        ", ".join(worker.offers),
        "any type" if types is None else ", ".join(types) or "no claim yet",
    ]


def _metadata(worker: WorkerRecord, name: str) -> str:
    """From its registration."""
    found = worker.metadata.get(name) if isinstance(worker.metadata, dict) else None
    return "" if found is None else f"{found}"


def _host(name: str) -> Styled:
    """Without its domain where the terminal is narrow."""
    first = name.partition(".")[0]
    return Styled(name, short=name if first.isdecimal() else first)  # an address has no domain


def _view(worker: WorkerRecord, held: dict[str, int]) -> dict[str, Any]:
    fields = camel_keys(asdict(worker))
    return {
        "workerId": fields.pop("id"),
        "workerType": fields.pop("kind"),
        **fields,
        "status": worker.status,
        "jobTypes": worker.job_types,
        "holds": held.get(worker.id, 0),
    }


@on_engine
async def register(engine: Engine, options: argparse.Namespace) -> None:
    from holdfast.engine import NewWorker

    require_new_file(options.key_file)
    new = NewWorker(
        name=options.name,
        kind=options.kind,
        capabilities=dict(options.capabilities),
        slots=options.slots,
        tenants=options.tenants,
    )
    worker, key = await engine.workers.register_with_key(new, options.queues, by=BY)
    printed = written_key(key, options.key_file)
    print_result(options, {**_view(worker, {}), **printed}, "\n".join([worker.id, *printed.values()]))


@on_engine
async def switch(engine: Engine, options: argparse.Namespace) -> None:
    worker = await find_worker(engine, options.worker)
    worker = await (engine.workers.enable if options.enable else engine.workers.disable)(worker.id, by=BY)
    view = _view(worker, await engine.workers.holds())
    print_result(options, view, f"worker {worker.name or worker.id} is {worker.status}")


@on_engine
async def revoke(engine: Engine, options: argparse.Namespace) -> None:
    worker = await find_worker(engine, options.worker)
    keys = await engine.workers.revoke(worker.id, by=BY)
    worker = await engine.workers.get(worker.id)
    view = {**_view(worker, await engine.workers.holds()), "revokedKeys": [key.id for key in keys]}
    print_result(options, view, f"{count(len(keys), 'key')} of worker {worker.name or worker.id} revoked")


async def find_worker(engine: Engine, wanted: str) -> WorkerRecord:
    """By name, id or id prefix."""
    workers = await engine.workers.all()
    found = [worker for worker in workers if wanted in (worker.id, worker.name)]
    found = found or [worker for worker in workers if is_prefix(worker.id, wanted)]
    match found:
        case [worker]:
            return worker
        case []:
            raise NotFound(f"no worker {wanted!r}; see `holdfast workers list`", code="worker_not_found")
        case _ if all(worker.name == wanted for worker in found):
            ids = ", ".join(worker.id for worker in found)
            raise Conflict(f"{len(found)} workers have the name {wanted!r}; use an id: {ids}")
    raise ambiguous("worker", wanted, [worker.id for worker in found])
