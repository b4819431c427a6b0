"""What has been found out about an image so far, within the limits."""

from __future__ import annotations

from holdfast.workloads.images.faults import CORRUPT, TOO_MANY_FRAMES, TOO_MANY_PIXELS, ImageFault
from holdfast.workloads.images.limits import ImageLimits

_PARTS_MAX = 100_000  # segments, chunks, blocks or boxes of a file, besides those of each frame
_PARTS_PER_FRAME = 4


class Tally:
    """Raises as soon as a limit is exceeded."""

    def __init__(self, limits: ImageLimits) -> None:
        self._limits = limits
        self.width = self.height = self.frames = 0
        self._parts = 0
        self._parts_max = _PARTS_MAX + _PARTS_PER_FRAME * limits.max_frames
        self._sideways = False

    @property
    def size(self) -> tuple[int, int]:
        """As it is displayed."""
        return (self.height, self.width) if self._sideways else (self.width, self.height)

    def resize(self, width: int, height: int) -> None:
        if not (width and height):
            raise no_dimensions()
        self._set(width, height)

    def enlarge(self, width: int, height: int) -> None:
        """A part of this size must fit into the image."""
        self._set(max(self.width, width), max(self.height, height))

    def grow(self, width: int, height: int) -> None:
        """The image is this one, if it is the largest so far."""
        if width * height > self.width * self.height:
            self._set(width, height)

    def _set(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        if width * height > self._limits.max_pixels:
            raise ImageFault(
                TOO_MANY_PIXELS,
                f"the image has {width} x {height} pixels; at most {self._limits.max_pixels} pixels are allowed",
            )
        self._check_animation()

    def count_frames(self, frames: int) -> None:
        self.check_frames(frames)
        self.frames = frames
        self._check_animation()

    def check_frames(self, frames: int) -> None:
        if frames > self._limits.max_frames:
            raise ImageFault(
                TOO_MANY_FRAMES,
                f"the image has more frames or pages than the {self._limits.max_frames} that are allowed",
            )

    def _check_animation(self) -> None:
        pixels = self.frames * self.width * self.height
        if self.frames > 1 and pixels > self._limits.max_animation_pixels:
            raise ImageFault(
                TOO_MANY_PIXELS,
                f"{self.frames} frames of {self.width} x {self.height} pixels;"
                f" at most {self._limits.max_animation_pixels} pixels of all frames together are allowed",
            )

    def count_parts(self, parts: int = 1) -> None:
        """Each costs time, and a hostile file is made of the smallest."""
        self._parts += parts
        if self._parts > self._parts_max:
            raise ImageFault(CORRUPT, f"the file has more than {self._parts_max} segments, chunks, blocks or boxes")

    def turn(self, sideways: bool) -> None:
        self._sideways = sideways


def no_dimensions() -> ImageFault:
    return ImageFault(CORRUPT, "the file is damaged: no width and height can be read from it")
