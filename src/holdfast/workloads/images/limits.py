"""How large an image may be, whatever its file says: checked while it is uploaded, and again while it is decoded."""

from typing import NamedTuple


class ImageLimits(NamedTuple):
    max_pixels: int
    max_frames: int
    max_animation_pixels: int  # of all frames together
