"""Any mode and any color profile to 8-bit sRGB."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any, NamedTuple, cast

from PIL import Image, ImageCms

_SIMPLE = ("L", "LA", "RGB", "RGBA", "CMYK")
_MODE_OF_SPACE = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}  # of an ICC profile
_ALPHA = {"LA": "L", "RGBA": "RGB"}


class ToSRGB(NamedTuple):
    """A color transform, and the mode of the images that it takes."""

    mode: str
    transform: ImageCms.ImageCmsTransform


def simplified(image: Image.Image) -> Image.Image:
    """In a mode that can be resized: grey, RGB or CMYK with 8 bits, with alpha where the image has transparency."""
    if image.mode in _SIMPLE and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _eight_bits(image)
    if image.mode == "LAB":
        return ToSRGB("LAB", _transform(ImageCms.createProfile("LAB"), "LAB")).transform.apply(image)
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        image, low, high = image if image.mode == "I;16" else image.convert("I"), 0.0, 65535.0
    else:
        low, high = _range(image)
    factor = 255 / (high - low)
    offset = 0.5 - low * factor
    scaled = image.point(lambda value: value * factor + offset)
    scaled.info = {}  # transparency, as a value before scaling
    return scaled.convert("L")


def _range(image: Image.Image) -> tuple[float, float]:
    """What is black and what is white: the usual range that holds all values, else their own."""
    low, high = cast(tuple[float, float], image.getextrema())
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    for top in (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0):
        if low >= 0 and high <= top:
            return 0.0, top
    return (low, high) if high > low else (low, low + 1)


def to_srgb(profile: bytes | None, mode: str) -> ToSRGB | None:
    """From the profile of an image of this mode; None if there is none that can be used."""
    if not profile:
        return None
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        wanted = _MODE_OF_SPACE.get(source.profile.xcolor_space.strip())
        if wanted is None or not _converts(mode, wanted):
            return None
        return ToSRGB(wanted, _transform(source, wanted))
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None


def _transform(source: Any, mode: str) -> ImageCms.ImageCmsTransform:
    return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")


def _converts(mode: str, wanted: str) -> bool:
    opaque = _ALPHA.get(mode, mode)
    return opaque == wanted or (opaque, wanted) == ("L", "RGB")


def in_srgb(image: Image.Image, to_srgb: ToSRGB | None) -> Image.Image:
    """RGB or RGBA."""
    has_alpha = image.mode in _ALPHA
    if to_srgb is None:
        return _as_mode(image, "RGBA" if has_alpha else "RGB")
    found = to_srgb.transform.apply(_as_mode(image, to_srgb.mode))
    found.info = {}  # the transform adds the profile of sRGB
    if has_alpha:
        found.putalpha(image.getchannel("A"))
    return found


def _as_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)
