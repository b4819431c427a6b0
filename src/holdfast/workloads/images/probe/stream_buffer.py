"""The bytes of a stream that have arrived and are still needed."""

from __future__ import annotations

import re
from collections.abc import Generator

TAKE_MAX = 65_536
_PIECE = 65_536  # the most that is copied at once, however large a chunk is

# A walk through one format: it yields whenever it needs bytes that have not arrived.
Walk = Generator[None, None, None]


class StreamBuffer:
    """A walk skips bytes by moving `at` forward, also beyond the end of `data`: what is skipped is never copied."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.at = 0  # the next byte to read
        self._dropped = 0  # bytes of the stream before data[0]

    def append(self, chunk: bytes, start: int) -> int:
        """Takes in a piece of the chunk. Returns where its next piece starts."""
        passed = min(self.at, len(self.data))
        del self.data[:passed]
        skipped = min(self.at - passed, len(chunk) - start)
        self.at -= passed + skipped
        self._dropped += passed + skipped
        end = start + skipped + _PIECE
        self.data += chunk[start + skipped : end]
        return end

    @property
    def position(self) -> int:
        return self._dropped + self.at

    def skip_to(self, position: int) -> None:
        """Never back: what is shorter than its own header is damaged."""
        self.at = max(self.at, position - self._dropped)

    def take(self, size: int) -> Generator[None, None, bytes]:
        """The next `size` bytes, or the first TAKE_MAX of them; none if the size is negative, in a damaged file."""
        size = max(0, min(size, TAKE_MAX))
        while len(self.data) - self.at < size:
            yield
        start, self.at = self.at, self.at + size
        return bytes(self.data[start : self.at])

    def find(self, pattern: re.Pattern[bytes]) -> Generator[None, None, int]:
        """Moves behind the next match, of one or two bytes. Returns its last byte."""
        while not (found := pattern.search(self.data, self.at)):
            self.at = max(self.at, len(self.data) - 1)  # the last byte may be the first half of a match
            yield
        self.at = found.end()
        return self.data[self.at - 1]
