"""One table for people, one JSON file for comparing runs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.databases import STORES
from benchmarks.measurement import Score

ROOT = Path(__file__).resolve().parents[1]


def arguments(about: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--store", choices=["both", *STORES], default="both", help="measure on this store only")
    parser.add_argument("--quick", action="store_true", help="one small round of everything: does it still run?")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results", help="where the JSON goes")
    return parser


def chosen_stores(options: argparse.Namespace) -> tuple[str, ...]:
    return STORES if options.store == "both" else (options.store,)


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """The first column is text, the others are figures."""
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"\n{title}")
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def shown(figure: float | None, form: str) -> str:
    """Empty if unknown."""
    return "" if figure is None else format(figure, form)


def rounds_of(scores: dict[str, Score]) -> dict[str, Any]:
    return {
        name: {
            "per_second": round(score.rate, 1),
            "cpu_micros_per_unit": score.cpu_micros and round(score.cpu_micros, 2),
            "wal_bytes_per_unit": score.wal_bytes and round(score.wal_bytes),
            "rounds": [[taken.units, round(taken.seconds, 6)] for taken in score.rounds],
        }
        for name, score in scores.items()
    }


def write_results(directory: Path, benchmark: str, *, quick: bool, stores: dict[str, Any], **more: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    at = datetime.now(UTC)
    path = directory / f"{benchmark}-{at:%Y%m%dT%H%M%S}-{os.getpid()}.json"
    result = {
        "benchmark": benchmark,
        "at": at.isoformat(timespec="seconds"),
        "quick": quick,
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "src")),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            "asyncpg": version("asyncpg"),
            "sqlite": sqlite3.sqlite_version,
            "holdfast": version("holdfast"),
        },
        "stores": stores,
        **more,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nEvery round is in {os.path.relpath(path)}")
    return path


def _git(*words: str) -> str | None:
    try:
        answer = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
