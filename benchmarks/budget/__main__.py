"""What each microsecond of a job goes to: in PostgreSQL, in the worker, on SQLite.

    python -m benchmarks.budget [--store postgres] [--quick]

The database's share of each part is what is saved without it, measured in turns in scratch databases. CPU time counts,
not the clock, and the quietest of 3 rounds. About two minutes. Exit status 1 says that a limit was exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from benchmarks import load
from benchmarks.budget.ceiling import ceiling
from benchmarks.budget.drainers import beside_processes
from benchmarks.budget.shares import QUICK, Sizes, rows, shares
from benchmarks.budget.stacks import stacks
from benchmarks.budget.statements import STATEMENTS, round_trips, statements
from benchmarks.budget.workers import drained, profiled, syncs
from benchmarks.databases import Host, PostgresHost, host
from benchmarks.report import arguments, chosen_stores, print_table, shown, write_results

STORE_MICROS_MAX = 30.0  # claim and complete by 100
WAL_BYTES_MAX = 1500.0
WORKER_MICROS_MAX = 20.0
MODULES_SHOWN = 14


async def budget(store: str, machine: Host, sizes: Sizes) -> dict[str, Any]:
    loaded = isinstance(machine, PostgresHost) and await machine.preload(STATEMENTS)
    found: dict[str, Any] = {"version": await machine.version(), "parts": await shares(machine, sizes)}
    if isinstance(machine, PostgresHost):
        found |= await statements(machine, sizes.hundreds) | {"statements_known": loaded}
        found["round_trips"] = await round_trips(machine, sizes.round_trips)
        found["stacks"] = await stacks(machine, sizes.hundreds * sizes.slices)
        found["processes"] = await beside_processes(
            machine, by_100=sizes.hundreds * sizes.slices, by_1=sizes.singles * sizes.slices, rounds=sizes.rounds
        )
    else:
        found["syncs_per_job"] = await syncs(machine, sizes.worker)
    found["workers"] = {str(count): await drained(machine, count, sizes.worker) for count in (1, 2)}
    found["modules"] = await profiled(machine, sizes.worker)
    one = found["workers"]["1"]
    found["ceiling"] = ceiling(one["worker_micros"], one["store_micros"] or 0.0)
    found["limits"] = limits(store, found)
    return found


def limits(store: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of PostgreSQL only: on SQLite the database is a part of the worker."""
    if store != "postgres":
        return []
    by_100 = found["parts"]["operations"]["claim+complete by 100"]["all"]
    one, two = found["workers"]["1"], found["workers"]["2"]
    [beside_two] = [each for each in found["processes"] if (each["by"], each["processes"]) == (100, 2)]
    figures = [
        ("database, claim+complete by 100, CPU us a job", by_100["cpu_micros"], STORE_MICROS_MAX),
        ("database, claim+complete by 100, WAL bytes a job", by_100["wal_bytes"], WAL_BYTES_MAX),
        ("the same by two processes, CPU us a job", beside_two["cpu_micros"], STORE_MICROS_MAX),
        ("the same by two processes, WAL bytes a job", beside_two["wal_bytes"], WAL_BYTES_MAX),
        ("database beside one worker process, CPU us a job", one["store_micros"], STORE_MICROS_MAX),
        ("database beside two worker processes, CPU us a job", two["store_micros"], STORE_MICROS_MAX),
        ("one worker process, CPU us a job", one["worker_micros"], WORKER_MICROS_MAX),
        ("two worker processes, CPU us a job", two["worker_micros"], WORKER_MICROS_MAX),
    ]
    return [
        {"figure": name, "value": value, "target": limit, "met": None if value is None else value <= limit}
        for name, value, limit in figures
    ]


# -- for people ----------------------------------------------------------------------------------------------------


def show(store: str, found: dict[str, Any]) -> None:
    ways = list(found["parts"]["operations"])
    print_table(
        f"{found['version']}: CPU us a job, and what is saved without each part",
        ["", *ways],
        rows(found["parts"], "cpu_micros"),
    )
    if store == "postgres":
        print_table(
            "WAL bytes a job, and what is saved without each part", ["", *ways], rows(found["parts"], "wal_bytes")
        )
        _show_statements(found)
    for part, reason in found["parts"]["not_taken_away"].items():
        print(f"not taken away: {part} ({reason})")
    _show_workers(found)
    if "syncs_per_job" in found:
        print(f"\nfsyncs a job: {shown(found['syncs_per_job'], '.4f') or 'unknown without strace'}")
    verdicts = {None: "unknown", True: "met", False: "MISSED"}
    if found["limits"]:
        print_table(
            "The limits",
            ["", "is", "at most", ""],
            [
                [each["figure"], shown(each["value"], ",.1f"), f"{each['target']:,.0f}", verdicts[each["met"]]]
                for each in found["limits"]
            ],
        )


def _show_statements(found: dict[str, Any]) -> None:
    whole = found["parts"]["operations"]["claim+complete by 100"]["all"]["cpu_micros"] or 0.0
    if found["stacks"]:
        print_table(
            "Claim and complete by 100, for each job: where PostgreSQL spends its CPU time",
            ["", "share", "us"],
            [[each["stage"], f"{each['share']:.1%}", f"{each['share'] * whole:.1f}"] for each in found["stacks"]],
        )
    print_table(
        "Claim and complete, for each job: in PostgreSQL, beside one and two processes",
        ["by", "processes", "CPU us", "WAL bytes"],
        [
            [
                f"{each['by']}",
                f"{each['processes']}",
                shown(each["cpu_micros"], ",.1f"),
                shown(each["wal_bytes"], ",.0f"),
            ]
            for each in found["processes"]
        ],
    )
    print_table(
        "One round trip, whatever it carries",
        ["", "CPU us"],
        [[name, f"{micros:.1f}"] for name, micros in found["round_trips"].items()],
    )
    if found["statements"]:
        print_table(
            "Claim and complete by 100, for each job: statements",
            ["", "calls", "plan us", "execute us", "WAL bytes"],
            [
                [
                    each["statement"],
                    f"{each['calls']:.3f}",
                    f"{each['plan_micros']:.1f}",
                    f"{each['execute_micros']:.1f}",
                    f"{each['wal_bytes']:,}",
                ]
                for each in found["statements"]
            ],
        )
    if found["wal"]:
        print_table(
            "Claim and complete by 100, for each job: records of the WAL",
            ["", "record", "records", "bytes", "full pages"],
            [
                [
                    each["of"],
                    each["record"],
                    f"{each['records']:.2f}",
                    f"{each['bytes']:.0f}",
                    f"{each['full_pages']:.0f}",
                ]
                for each in found["wal"]
            ],
        )


def _show_workers(found: dict[str, Any]) -> None:
    print_table(
        "A worker with 100 slots, CPU us a job",
        ["processes", "worker", "database", "WAL bytes", "jobs/s"],
        [
            [
                count,
                shown(each["worker_micros"], ".1f"),
                shown(each["store_micros"], ".1f"),
                shown(each["wal_bytes"], ",.0f"),
                f"{each['jobs_per_second']:,}",
            ]
            for count, each in found["workers"].items()
        ],
    )
    whole = found["workers"]["1"]["worker_micros"]
    print_table(
        "The CPU time of one worker process, by module",
        ["", "share", "us a job"],
        [
            [each["module"], f"{each['share']:.1%}", f"{each['share'] * whole:.1f}"]
            for each in found["modules"][:MODULES_SHOWN]
        ],
    )
    print(f"\nCeiling of {found['ceiling']['cores']} cores: {found['ceiling']['jobs_per_second']:,} jobs/s")


async def measure(options: argparse.Namespace) -> bool:
    seen, sizes = load.look(), QUICK if options.quick else Sizes()
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            stores[store] = await budget(store, machine, sizes) | {"machine_before": seen}
        show(store, stores[store])
    print(f"\n{load.told(seen)}")
    write_results(options.results, "budget", quick=options.quick, stores=stores)
    return options.quick or all(each["met"] for found in stores.values() for each in found["limits"])


def main(words: list[str] | None = None) -> int:
    options = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    return 0 if asyncio.run(measure(options)) else 1


if __name__ == "__main__":
    sys.exit(main())
