"""A picture: decoded once, rendered in many variants. Blocks, and belongs in a process with limits."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageFile

from holdfast.workloads.images.color import in_srgb, simplified, to_srgb
from holdfast.workloads.images.decode import (
    check_scans,
    count_frames,
    decoding,
    first_frame,
    keep_disposed_transparent,
    load_frame,
    load_reduced,
    opened,
    orientation,
    plays,
)
from holdfast.workloads.images.encode import FrameSequence, encode_animation, encode_still, on_canvas
from holdfast.workloads.images.faults import TOO_MANY_PIXELS, ImageFault
from holdfast.workloads.images.fingerprint import THUMBNAIL, Fingerprint, fingerprint
from holdfast.workloads.images.geometry import Placement, place
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.variants import Variant

__all__ = ["Picture", "Rendered"]

_ANIMATED = ("webp", "avif")
_FORMAT = {"MPO": "jpeg"}  # a JPEG with previews, as some cameras make it
_TRANSPOSED = (5, 6, 7, 8)
_TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_GAP = 3  # resizing starts with whole-number reduction to three times the size: twice as fast, and looks the same
_KEPT_PIXELS = 16_000_000  # of resized pictures: 64 MB
_NO_DURATION_MS = 100  # of a frame without: what browsers do


class Rendered(NamedTuple):
    data: bytes
    width: int
    height: int
    frames: int


class Picture:
    """`width` and `height`: as seen, after the EXIF orientation. Every method raises ImageFault."""

    width: int
    height: int
    frames: int
    format: str

    def __init__(self, source: bytes | Path, limits: ImageLimits) -> None:
        self._source, self._limits = source, limits
        self._resized: dict[Placement, Image.Image] = {}

    @classmethod
    def open(cls, data: bytes | Path, limits: ImageLimits, *, largest: Sequence[Variant] | None = None) -> Picture:
        """Decodes it, only as large as the largest of these variants needs; None: in full. A variant has the same
        bytes whenever the picture is opened with the same variants."""
        picture = cls(data, limits)
        with decoding(limits), opened(data) as image:
            picture._read(image, largest)
        return picture

    def _read(self, image: ImageFile.ImageFile, largest: Sequence[Variant] | None) -> None:
        self.format = _FORMAT.get(str(image.format), str(image.format).lower())
        self.frames = count_frames(image, self._limits)
        check_scans(self._source, image, self._limits)
        self._turn = orientation(image)
        self.width, self.height = image.size[::-1] if self._turn in _TRANSPOSED else image.size
        profile = image.info.get("icc_profile")
        self._base, self._reduced = load_reduced(image, self._scale(largest), _GAP)
        self._to_srgb = to_srgb(profile, self._base.mode)

    def _scale(self, largest: Sequence[Variant] | None) -> float:
        if largest is None:
            return 1.0
        scales = [place(self.width, self.height, variant).scale for variant in largest]
        return min(1.0, max([*scales, max(THUMBNAIL) / min(self.width, self.height)]))

    def render(self, variant: Variant) -> Rendered:
        with decoding(self._limits):
            placement = place(self.width, self.height, variant)
            if self.frames > 1 and variant.format in _ANIMATED:
                return Rendered(self._animation(variant, placement), *placement.canvas, self.frames)
            image = on_canvas(self._fitted(placement), placement.canvas, transparency=variant.format != "jpeg")
            return Rendered(encode_still(image, variant), *placement.canvas, 1)

    def fingerprint(self) -> Fingerprint:
        with decoding(self._limits):
            whole = Placement((0, 0, self.width, self.height), THUMBNAIL, THUMBNAIL)
            thumbnail = self._fit(self._base, whole, self._reduced)
            return fingerprint(thumbnail, (4, 3) if self.width >= self.height else (3, 4))

    def _fitted(self, placement: Placement) -> Image.Image:
        """Kept for the variants of this size in other formats."""
        placement = placement._replace(canvas=placement.size)
        if placement not in self._resized:
            while self._resized and self._pixels_kept() + placement.pixels > _KEPT_PIXELS:
                del self._resized[next(iter(self._resized))]
            self._resized[placement] = self._fit(self._base, placement, self._reduced)
        return self._resized[placement]

    def _pixels_kept(self) -> int:
        return sum(placement.pixels for placement in self._resized)

    def _fit(self, image: Image.Image, placement: Placement, reduced: int = 1) -> Image.Image:
        """As stored to upright. Resized first: small images are faster to convert and to turn."""
        stored = placement.transposed() if self._turn in _TRANSPOSED else placement
        left, top, right, bottom = (side / reduced for side in stored.box)
        if image.size != stored.size or (left, top, right, bottom) != (0, 0, *image.size):
            image = image.resize(stored.size, Image.Resampling.LANCZOS, (left, top, right, bottom), _GAP)
        image = in_srgb(image, self._to_srgb)
        return image.transpose(_TURN[self._turn]) if self._turn in _TURN else image

    def _animation(self, variant: Variant, placement: Placement) -> bytes:
        with opened(self._source) as image, closing(self._frames(image, placement)) as frames:
            return encode_animation(FrameSequence(frames, self.frames), variant, plays(image))

    def _frames(self, image: ImageFile.ImageFile, placement: Placement) -> Generator[tuple[Image.Image, int]]:
        """Each with its duration in milliseconds. What is rounded off goes to the next frame."""
        pixels, elapsed, mode = 0, 0.0, ""
        for index in range(first_frame(image), first_frame(image) + self.frames):
            load_frame(image, index, self._limits)
            if index == 0:
                keep_disposed_transparent(self._source, image)
            pixels += image.width * image.height
            if pixels > self._limits.max_animation_pixels:  # frames may be larger than the first
                raise ImageFault(TOO_MANY_PIXELS, f"the frames have more than {pixels} pixels together")
            frame = on_canvas(self._fit(simplified(image), placement), placement.canvas, transparency=True)
            mode = mode or frame.mode  # encoders want one for all
            until = elapsed + (image.info.get("duration") or _NO_DURATION_MS)
            yield frame if frame.mode == mode else frame.convert(mode), round(until) - round(elapsed)
            elapsed = until
