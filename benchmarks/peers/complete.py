"""What a run lacks. Only a complete run is published: a peer or a figure that is left out looks like a choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.peers.bench import Sizes
from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.peers.cells import Cell, cells

HTTP = "http"  # `POST /jobs` beside the bare endpoint, which has no peers


class Partial(Exception):
    """Not to be published, and why."""

    def __init__(self, lacking: list[str]) -> None:
        listed = "\n".join(f"  {each}" for each in lacking)
        super().__init__(f"This run is not published. It lacks:\n{listed}")


def missing(results: dict[str, Any]) -> list[str]:
    return list(_missing(results))


def _missing(results: dict[str, Any]) -> Iterator[str]:
    if results["quick"]:
        yield "full sizes: it was a quick run"
    found = {peer["name"]: peer["cells"] for store in results["stores"].values() for peer in store["peers"]}
    for peer in PEERS:
        if peer.name not in found:
            yield f"{peer.name}: the whole peer"
        else:
            yield from _of_peer(peer, found[peer.name])
    if not results.get(HTTP):
        yield "POST /jobs beside the bare endpoint"


def _of_peer(peer: Peer, found: dict[str, Any]) -> Iterator[str]:
    for cell in cells():
        if cell.applies(peer):
            result = found.get(cell.name)
            if result is None:
                yield f"{peer.name}: {cell.title}"
            elif "error" in result:
                yield f"{peer.name}: {cell.title}, which failed: {result['error'].splitlines()[0]}"
            elif (rounds := len(result["rounds"])) < _wanted(cell):
                yield f"{peer.name}: {cell.title}, {rounds} of {_wanted(cell)} rounds"


def _wanted(cell: Cell) -> int:
    return Sizes.rounds if cell.repeated else 1


def summary(results: dict[str, Any]) -> str:
    """One line, for the page of a run from before this was checked."""
    lacking = missing(results)
    peers = [each.removesuffix(": the whole peer") for each in lacking if each.endswith(": the whole peer")]
    others = len(lacking) - len(peers)
    parts = [f"the peers {', '.join(peers)}"] if peers else []
    parts += [f"{others} figures of the others"] if others else []
    return " and ".join(parts)
