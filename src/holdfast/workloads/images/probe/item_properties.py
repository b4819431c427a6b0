"""Size and rotation of the primary item of an AVIF file. Other items are its tiles, its alpha plane or a thumbnail."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.workloads.images.probe.tally import Tally

_KEPT_MAX = 5000  # properties; known writers need a dozen


class ItemProperties:
    """Until the primary item is known, the largest item counts."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._primary: int | None = None
        self._kept: list[bytes] = []

    def set_primary(self, body: bytes) -> None:
        self._primary = int.from_bytes(body[4:6] if body[:1] == b"\0" else body[4:8])

    def add(self, kind: bytes, body: bytes) -> None:
        """The next property; items refer to it by its number."""
        if len(self._kept) < _KEPT_MAX:
            self._kept.append(kind + body)
        if kind == b"ispe":
            self._tally.grow(*_size(body))

    def associate(self, body: bytes) -> None:
        """Which properties belong to which item."""
        for item, numbers in self._associations(body):
            if item == self._primary:
                for number in numbers:
                    self._apply(number)

    def _associations(self, body: bytes) -> Iterator[tuple[int, list[int]]]:
        id_size = 2 if body[:1] == b"\0" else 4
        number_size = 2 if int.from_bytes(body[1:4]) & 1 else 1
        essential = 0x80 << 8 * (number_size - 1)  # a flag in the same field
        at = 8
        while at + id_size < len(body):
            item, count = int.from_bytes(body[at : at + id_size]), body[at + id_size]
            self._tally.count_parts(1 + count)
            at += id_size + 1
            end = at + count * number_size
            yield item, [int.from_bytes(body[i : i + number_size]) & ~essential for i in range(at, end, number_size)]
            at = end

    def _apply(self, number: int) -> None:
        if not 0 < number <= len(self._kept):
            return
        kind, body = self._kept[number - 1][:4], self._kept[number - 1][4:]
        if kind == b"ispe":
            self._tally.resize(*_size(body))
        elif kind == b"irot":
            self._tally.turn(int.from_bytes(body[:1]) % 2 == 1)  # in quarter turns


def _size(body: bytes) -> tuple[int, int]:
    return int.from_bytes(body[4:8]), int.from_bytes(body[8:12])
