"""Truncates texts to a width, so that different texts stay distinguishable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from rich.cells import cell_len, set_cell_size

ELLIPSIS = "…"
HEAD_WIDTH = 3  # of a text that is shown from where it differs from others


def truncated_distinct(texts: Iterable[str], width: int) -> dict[str, str]:
    """Each text truncated in the middle, or shown from where it differs if others would look the same."""
    shown = {text: cut_middle(text, width) for text in texts}
    alike = defaultdict(list)
    for text, cut in shown.items():
        alike[cut].append(text)
    for same in alike.values():
        if len(same) > 1:
            starts = _differ_from(sorted(same))
            shown |= {text: _from(text, starts[text], width) for text in same}
    return shown


def cut_middle(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 2
    return _left(text, width - 1 - tail) + ELLIPSIS + _right(text, tail)


def cut_end(text: str, width: int) -> str:
    return text if cell_len(text) <= width else _left(text, width - 1) + ELLIPSIS


def _differ_from(texts: list[str]) -> dict[str, int]:
    """Where each text differs from all others: in sorted order, from its neighbours."""
    starts = dict.fromkeys(texts, 0)
    for one, other in pairwise(texts):
        shared = _shared_length(one, other)
        starts[one], starts[other] = max(starts[one], shared), max(starts[other], shared)
    return starts


def _shared_length(one: str, other: str) -> int:
    """The length of the common prefix."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _from(text: str, start: int, width: int) -> str:
    head = min(HEAD_WIDTH, width // 3)
    return _left(text, head) + ELLIPSIS + cut_end(text[start:], width - head - 1)


def _left(text: str, width: int) -> str:
    return set_cell_size(text, width) if width else ""


def _right(text: str, width: int) -> str:
    return set_cell_size(text[::-1], width)[::-1] if width else ""
