"""Images that providers return: whether they can be shown, and what they look like. All of it is work for a thread or
a child process."""

from __future__ import annotations

import hashlib
import logging
from io import BytesIO
from typing import cast

import msgspec
from PIL import ExifTags, Image, ImageCms

from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.image_files import ImageFormat, MalformedImage, announced

MAX_PIXELS = 2048 * 2048
_SIDEWAYS = range(5, 9)  # values of EXIF orientation
_TURNS = dict(
    enumerate(
        (
            Image.Transpose.FLIP_LEFT_RIGHT,
            Image.Transpose.ROTATE_180,
            Image.Transpose.FLIP_TOP_BOTTOM,
            Image.Transpose.TRANSPOSE,
            Image.Transpose.ROTATE_270,
            Image.Transpose.TRANSVERSE,
            Image.Transpose.ROTATE_90,
        ),
        start=2,
    )
)
_QUALITY = 80

log = logging.getLogger(__name__)


class CheckedImage(msgspec.Struct, frozen=True):
    """`width` and `height`: as seen, with its EXIF orientation applied; `bytes`: the size of the file."""

    content_type: str
    suffix: str
    width: int
    height: int
    sha256: str
    bytes: int


def checked(data: bytes, *, width: int, height: int, max_pixels: int = MAX_PIXELS) -> CheckedImage:
    """Providers round sizes: what differs from the request is recorded as it is. Raises `ProviderError`."""
    kind, image = _decoded(data, max_pixels)
    size = image.size[::-1] if _orientation(image) in _SIDEWAYS else image.size
    if size != (width, height):
        log.info("the provider returned %d x %d pixels instead of %d x %d", *size, width, height)
    return CheckedImage(kind.content_type, kind.suffix, *size, hashlib.sha256(data).hexdigest(), len(data))


def decoded(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Raises `ProviderError`."""
    return _decoded(data, max_pixels)[1]


def _decoded(data: bytes, max_pixels: int) -> tuple[ImageFormat, Image.Image]:
    """Limits are checked first, on what the file announces; a decoder cannot exceed them."""
    try:
        kind, width, height = announced(data)
        if width * height > max_pixels or min(width, height) < 1:
            raise MalformedImage(f"it has {width} x {height} pixels")
        return kind, _loaded(data, kind, (width, height))
    except MalformedImage as error:
        raise ProviderError("provider_bad_answer", f"unusable image: {error}", "transient") from None


def _loaded(data: bytes, kind: ImageFormat, size: tuple[int, int]) -> Image.Image:
    try:
        image = Image.open(BytesIO(data), formats=[kind.name])
        if image.size != size or getattr(image, "n_frames", 1) > 1:
            raise MalformedImage("it has another size than it announces, or several frames")
        image.load()
    except (MalformedImage, MemoryError):
        raise
    except Exception as error:  # Pillow's plug-ins raise whatever they find
        raise MalformedImage(f"the {kind.name} file cannot be decoded: {str(error)[:200]}") from None
    return image


def thumbnail(data: bytes, longest: int = 384) -> bytes:
    """WebP in sRGB, upright, without metadata."""
    image = decoded(data)
    orientation, profile = _orientation(image), image.info.get("icc_profile")
    small = simplified(image)
    small.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    small = _in_srgb(small, profile)
    if orientation in _TURNS:
        small = small.transpose(_TURNS[orientation])
    small.info = {}
    file = BytesIO()
    small.save(file, "WEBP", quality=_QUALITY, method=4)
    return file.getvalue()


def simplified(image: Image.Image) -> Image.Image:
    """A copy in a mode that can be resized: grey, RGB or CMYK with 8 bits, with alpha where it has transparency."""
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.copy() if image.mode in ("L", "RGB", "CMYK") else image.convert("RGB")


def dhash(image: Image.Image) -> str:
    """64 bits in hexadecimal: whether it gets brighter from each of 9 x 8 cells to the one on its right. Few of them
    differ between similar images."""
    small = simplified(image).resize((72, 64), Image.Resampling.LANCZOS)
    if small.mode == "RGBA":
        small = Image.alpha_composite(Image.new("RGBA", small.size, "white"), small)
    cells = small.convert("L").resize((9, 8), Image.Resampling.LANCZOS).tobytes()
    bits = (cells[9 * y + x + 1] > cells[9 * y + x] for y in range(8) for x in range(8))
    return f"{int(''.join('01'[bit] for bit in bits), 2):016x}"


def _orientation(image: Image.Image) -> int:
    try:
        return cast(int, image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # Pillow's parser raises whatever it finds; the pixels are fine
        return 1


def _in_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """RGB or RGBA. A profile that is damaged, or of another color space, is ignored."""
    mode = "RGBA" if image.mode == "RGBA" else "RGB"
    if profile:
        try:
            source = ImageCms.ImageCmsProfile(BytesIO(profile))
            found = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode=mode)
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            found = None
        if found is not None:
            return found
    return image.convert(mode)
