"""`holdfast jobs create`: creates one job."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.database import settings_of, with_engine
from holdfast.cli.output import print_result
from holdfast.cli.parser import command
from holdfast.cli.times import moment, seconds
from holdfast.errors import Invalid
from holdfast.model import NewJob

if TYPE_CHECKING:
    from holdfast.engine import Engine


def add_to(verbs: Any) -> None:
    parser = command(
        verbs,
        "create",
        create,
        about="create a job and print its id once it is committed",
        more="Options that are not given come from the declaration of the job type, else from the settings.",
        examples=[
            'holdfast jobs create send_email --payload \'{"to": "a@example.com"}\' --queue mail',
            "holdfast jobs create report --payload @report.json --delay 30m --idempotency-key report-2026-01",
        ],
    )
    parser.add_argument("type", metavar="TYPE", help="job type")
    parser.add_argument("--payload", default="{}", metavar="JSON", help="a JSON object, @FILE, or - for standard input")
    parser.add_argument("--queue", help="queue")
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="priority, -100 to 100, higher first (0)")
    parser.add_argument("--delay", type=seconds, metavar="DURATION", help="run after this time: 90s, 30m, 2h")
    parser.add_argument("--run-at", type=moment, metavar="TIME", help="run at this time: 2026-01-31T12:00:00Z")
    parser.add_argument(
        "--idempotency-key", metavar="KEY", help="repeating the request with the same key returns the same job"
    )
    parser.add_argument("--max-attempts", type=int, metavar="N", help="maximum number of attempts, including the first")
    parser.add_argument("--subject", help="subject of the job, such as the id of a video (at most 200 characters)")
    parser.add_argument("--limit-key", metavar="KEY", help="key of the job's limits by key, such as a domain")
    parser.add_argument("--fairness-key", metavar="KEY", help="claims take turns between the keys of a job type")
    parser.add_argument(
        "--limit",
        dest="limits",
        action="append",
        type=_units,
        metavar="NAME=UNITS",
        help="a named limit, and the units that the job takes of it (1); can be repeated",
    )
    parser.add_argument("--lifecycle", metavar="NAME", help="lifecycle, for a type that no app has declared")
    parser.add_argument(
        "--tag", dest="tags", action="append", default=[], metavar="TAG", help="tag for filters; can be repeated"
    )


def create(options: argparse.Namespace) -> int:
    new = NewJob(
        type=options.type,
        payload=_payload(options.payload),
        queue=options.queue,
        priority=options.priority,
        delay_seconds=options.delay,
        run_at=options.run_at,
        idempotency_key=options.idempotency_key,
        max_attempts=options.max_attempts,
        tags=options.tags,
        subject=options.subject,
        lifecycle=options.lifecycle,
        limit_key=options.limit_key,
        fairness_key=options.fairness_key,
        limits=None if options.limits is None else dict(options.limits),
    )
    with_engine(options, lambda engine: _create(engine, options, new))
    return 0


def _units(text: str) -> tuple[str, int]:
    """`gpu=3`; `gpu` is one unit."""
    name, given, units = text.partition("=")
    if not given:
        return name, 1
    if not units.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=UNITS, such as gpu=3")
    return name, int(units)


async def _create(engine: Engine, options: argparse.Namespace, new: NewJob) -> None:
    await engine.job_types.check([new], refuse_unknown=settings_of(options).unknown_job_types == "refuse")
    if new.type not in (known := await engine.reads.job_types()):
        _warn_unknown(new.type, list(known))
    created = await engine.create(new)
    view = {"jobId": created.id, "status": created.status, "existed": created.existed}
    print_result(options, view, created.id)


def _warn_unknown(job_type: str, known: list[str]) -> None:
    near = get_close_matches(job_type, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "the job waits until a worker runs this type"
    print(f"warning: no app has declared job type {job_type!r}; {hint}", file=sys.stderr)


def _payload(given: str) -> Any:
    try:
        return msgspec.json.decode(_read(given))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"--payload is not JSON: {error}", code="payload_not_json") from None


def _read(given: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given.encode(errors="surrogateescape")  # invalid UTF-8 is rejected as invalid JSON
    try:
        return Path(given[1:]).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Invalid(f"--payload: cannot read {given[1:]}: {why}", code="payload_not_json") from None
