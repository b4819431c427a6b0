"""The smallest lawful lifecycle, for tests that break one thing in it at a time."""

from typing import Any

from holdfast.lifecycle import Machine

WORDS = {"queued": "waiting", "running": "baking", "succeeded": "served", "dead": "burnt"}
MOVES = (
    "claim: queued -> running by worker",
    "complete: running -> succeeded by worker",
    "release: running -> queued by worker",
    "fail: running -> dead by worker",
    "reap: running -> dead by system",
)


def declare(name: str = "bakery", *, words: dict[str, str] | None = None, without: str = "", **changes: Any) -> Machine:
    """`words` come on top, `moves` are added, and the move that starts with `without` is left out."""
    moves = [move for move in MOVES if not without or not move.startswith(without)]
    moves += changes.pop("moves", [])
    return Machine(name, words={**WORDS, **(words or {})}, moves=moves, **changes)
