"""The prober: tells the type from the first bytes, then lets the walk of that format read on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from holdfast.workloads.images.faults import UNSUPPORTED, ImageFault
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.probe import avif, bmp, gif, jpeg, png, tiff, webp
from holdfast.workloads.images.probe.stream_buffer import StreamBuffer, Walk
from holdfast.workloads.images.probe.tally import Tally, no_dimensions

_SIGNATURE_SIZE = 18  # of a BMP file: two letters tell too little
_WALKS: dict[str, tuple[bytes, Callable[[StreamBuffer, Tally], Walk]]] = {
    "jpeg": (rb"\xff\xd8\xff", jpeg.walk),
    "png": (rb"\x89PNG\r\n\x1a\n", png.walk),
    "gif": (rb"GIF8[79]a", gif.walk),
    "webp": (rb"RIFF....WEBP", webp.walk),
    "avif": (rb"....ftyp(avif|avis|mif1|msf1)", avif.walk),
    "tiff": (rb"II\*\0|MM\0\*", tiff.walk),
    "bmp": (rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", bmp.walk),
}


class ImageInfo(NamedTuple):
    format: str
    media_type: str
    width: int  # as displayed: after the orientation
    height: int
    frames: int


class Prober:
    """Gets the chunks of an upload as they arrive. A file that is broken behind its header is accepted: only decoding
    it would tell."""

    def __init__(self, limits: ImageLimits) -> None:
        self._buffer = StreamBuffer()
        self._tally = Tally(limits)
        self._format: str | None = None
        self._fault: ImageFault | None = None
        self._walk = self._run()
        self._done = False

    def feed(self, chunk: bytes) -> None:
        """Raises ImageFault."""
        start = 0
        while start < len(chunk) and not self._done:
            start = self._buffer.append(chunk, start)
            self._advance()
        self._check()

    def finish(self) -> ImageInfo:
        """Raises ImageFault."""
        self._check()
        name = self._format or _format_of(self._buffer.data)
        width, height = self._tally.size
        if not (width and height):
            raise no_dimensions()
        return ImageInfo(name, f"image/{name}", width, height, max(1, self._tally.frames))

    def _run(self) -> Walk:
        head = yield from self._buffer.take(_SIGNATURE_SIZE)
        self._buffer.at = 0  # a walk reads its format from the beginning
        self._format = _format_of(head)
        yield from _WALKS[self._format][1](self._buffer, self._tally)

    def _advance(self) -> None:
        try:
            next(self._walk)
        except StopIteration:
            self._done = True
        except ImageFault as fault:
            self._done, self._fault = True, fault

    def _check(self) -> None:
        if self._fault:
            raise self._fault


def _format_of(head: bytes | bytearray) -> str:
    for name, (signature, _) in _WALKS.items():
        if re.match(signature, head, re.DOTALL):
            return name
    if not head:
        raise ImageFault(UNSUPPORTED, "the file is empty")
    raise ImageFault(
        UNSUPPORTED, "the file is not an image of a supported type; send JPEG, PNG, GIF, WebP, AVIF, TIFF or BMP"
    )
