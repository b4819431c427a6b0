"""Reading files with Pillow: limits, and every failure as an ImageFault."""

from __future__ import annotations

import errno
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from PIL import AvifImagePlugin, ExifTags, Image, ImageFile, PngImagePlugin, UnidentifiedImageError

from holdfast.workloads.images.color import simplified
from holdfast.workloads.images.faults import (
    CORRUPT,
    OUT_OF_MEMORY,
    TOO_MANY_FRAMES,
    TOO_MANY_PIXELS,
    UNSUPPORTED,
    ImageFault,
)
from holdfast.workloads.images.limits import ImageLimits

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "TIFF", "BMP")
# Encoders make about 10 scans. Of an image with the most pixels that are allowed, 32 take a few seconds.
_SCANS_MAX, _SCANS_OF_LARGEST = 500, 32
_PROFILE_BYTES_MAX = 1 << 24  # of a profile or a text that is compressed in a PNG; by default 1 MiB, and some have more
_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")  # of a JPEG; others have no segment, or are image data
_END_OF_IMAGE, _START_OF_SCAN = b"\xd9", b"\xda"
_CONTROL = re.compile(rb"!\xf9\x04(.)", re.DOTALL)  # of a frame of a GIF; what looks like one changes nothing visible
_ANIMATED = ("GIF", "WEBP", "AVIF", "PNG")  # the others have pages, or the previews of a camera


@contextmanager
def decoding(limits: ImageLimits) -> Iterator[None]:
    """Whatever Pillow raises becomes an ImageFault, except errors of the operating system, such as a missing file."""
    try:
        with warnings.catch_warnings(), _set(limits):
            warnings.simplefilter("ignore")  # about metadata, which is not kept
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except ImageFault:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageFault(TOO_MANY_PIXELS, f"the image has more than {limits.max_pixels} pixels") from None
    except Exception as error:
        if _is_of_the_system(error):
            raise
        if _is_out_of_memory(error):
            raise ImageFault(OUT_OF_MEMORY, "the image needs more memory than there is") from error
        raise ImageFault(CORRUPT, f"the image cannot be decoded: {str(error)[:200]}") from error


@contextmanager
def _set(limits: ImageLimits) -> Iterator[None]:
    """What Pillow has as variables of its modules."""
    wanted = (
        (Image, "MAX_IMAGE_PIXELS", limits.max_pixels),
        (AvifImagePlugin, "DEFAULT_MAX_THREADS", 1),
        (PngImagePlugin, "MAX_TEXT_CHUNK", _PROFILE_BYTES_MAX),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in wanted]
    for module, name, value in wanted:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _is_of_the_system(error: Exception) -> bool:
    # EINVAL: an offset in the file is negative
    return isinstance(error, OSError) and error.errno not in (None, errno.EINVAL, errno.ENOMEM)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():  # of libavif: a RuntimeError
        return True
    return isinstance(error, OSError) and error.errno == errno.ENOMEM


@contextmanager
def opened(source: bytes | Path) -> Iterator[ImageFile.ImageFile]:
    """The file, with its header read. Use inside `decoding`."""
    with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        try:
            image = Image.open(file, formats=_FORMATS)
        except UnidentifiedImageError:
            raise _unidentified(file) from None
        with image:
            yield image


def _unidentified(file: BinaryIO) -> ImageFault:
    file.seek(0)
    start = file.read(16)
    accepted = (Image.OPEN[name][1] for name in _FORMATS)
    if not start or any(accepts and accepts(start) for accepts in accepted):
        return ImageFault(CORRUPT, "the image is damaged at its beginning" if start else "the file is empty")
    return ImageFault(UNSUPPORTED, "the format is not supported: use JPEG, PNG, GIF, WebP, AVIF, TIFF or BMP")


def count_frames(image: ImageFile.ImageFile, limits: ImageLimits) -> int:
    """Of an animation; 1 for others. Raises if the image or all frames together are too large."""
    pixels = image.width * image.height
    if pixels > limits.max_pixels:
        raise ImageFault(
            TOO_MANY_PIXELS,
            f"the image has {image.width} x {image.height} pixels; at most {limits.max_pixels} are allowed",
        )
    frames: int = getattr(image, "n_frames", 1) if image.format in _ANIMATED else 1
    frames -= first_frame(image)
    if frames > limits.max_frames:
        raise ImageFault(TOO_MANY_FRAMES, f"the image has {frames} frames; at most {limits.max_frames} are allowed")
    if frames > 1 and frames * pixels > limits.max_animation_pixels:
        raise ImageFault(
            TOO_MANY_PIXELS,
            f"the frames have {frames * pixels} pixels together; at most {limits.max_animation_pixels} are allowed",
        )
    return frames


def check_scans(source: bytes | Path, image: ImageFile.ImageFile, limits: ImageLimits) -> None:
    """Each scan of a progressive JPEG visits all pixels, and may take only a few bytes of the file."""
    if image.format not in ("JPEG", "MPO"):
        return
    data = source if isinstance(source, bytes) else source.read_bytes()
    most = min(_SCANS_MAX, _SCANS_OF_LARGEST * limits.max_pixels // (image.width * image.height))
    if data.count(b"\xff\xda") > most and (scans := _count_scans(data)) > most:
        raise ImageFault(
            TOO_MANY_PIXELS,
            f"the image has {scans} scans of {image.width} x {image.height} pixels;"
            f" at most {most} are allowed for this size",
        )


def _count_scans(data: bytes) -> int:
    """Segments are passed over: what looks like a scan there, as in a thumbnail, is none."""
    scans, at = 0, 2
    while (found := _MARKER.search(data, at)) and found[1] != _END_OF_IMAGE:
        scans += found[1] == _START_OF_SCAN
        at = found.end() + int.from_bytes(data[found.end() : found.end() + 2])
    return scans


def first_frame(image: ImageFile.ImageFile) -> int:
    """An animated PNG may begin with a picture for programs that do not play it."""
    return 1 if getattr(image, "default_image", False) else 0


def load_reduced(image: ImageFile.ImageFile, scale: float, gap: int) -> tuple[Image.Image, int]:
    """Its pixels, reduced by a whole number as far as `scale` allows, and that number. A JPEG is decoded at a half, a
    quarter or an eighth of its size if that is enough; others are left `gap` times larger than needed."""
    width, height = image.size
    drafted = image.draft(None, (math.ceil(width * scale), math.ceil(height * scale)))
    reduced = round(width / drafted[1][2]) if drafted else 1
    image.load()
    found = simplified(image)
    if (further := int(1 / (scale * reduced * gap))) > 1:
        found, reduced = found.reduce(further), reduced * further
    elif found is image:
        found = image.copy()  # without the decoder: that of WebP holds two more of it
    found.info = {}  # Pillow writes some of it on its own: comments, profiles
    return found, reduced


def load_frame(image: ImageFile.ImageFile, index: int, limits: ImageLimits) -> None:
    with decoding(limits):  # here, because to Pillow's savers an EOFError is the end of the animation
        image.seek(index)
        image.load()


def keep_disposed_transparent(source: bytes | Path, image: ImageFile.ImageFile) -> None:
    """At the first frame of a GIF: give it a transparent color that it does not use, if it has none. Otherwise Pillow
    makes the picture black where a later frame is cleared."""
    if image.format != "GIF" or image.mode != "P" or "transparency" in image.info:
        return
    data = source if isinstance(source, bytes) else source.read_bytes()
    if any(_is_cleared(found[1][0]) for found in _CONTROL.finditer(data)):
        used = {index for _, index in image.getcolors() or ()}
        if unused := set(range(256)) - used:
            image.info["transparency"] = max(unused)


def _is_cleared(flags: int) -> bool:
    return bool(flags & 1) and flags >> 2 & 7 == 2


def orientation(image: ImageFile.ImageFile) -> int:
    """Of the EXIF metadata; 1, upright, if there are none, or none that can be read."""
    if image.format == "TIFF":
        return 1  # Pillow has turned it
    if image.format == "PNG":
        image.load()  # `getexif` would, and what it raises must not be ignored
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # Pillow's parser raises whatever it finds; the pixels may be fine
        return 1
    return found if found in range(1, 9) else 1


def plays(image: ImageFile.ImageFile) -> int:
    """How often an animation plays; 0: forever."""
    loop: int = image.info.get("loop", -1 if image.format == "GIF" else 0)
    if image.format == "GIF" and loop != 0:
        return min(max(loop, 0) + 1, 65_535)  # GIF counts repetitions
    return min(loop, 65_535)
