"""Text that an image file carries besides its pixels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from PIL import ExifTags, Image, PngImagePlugin

_TEXT_MAX, _ALL_MAX = 16_384, 65_536  # characters
_IN_EXIF = (0x010E, 0x013B, 0x8298, 0x9C9B, 0x9C9C, 0x9C9E, 0x9C9F)  # ImageDescription, Artist, Copyright, XPTitle ff.
_USER_COMMENT = 0x9286
_CHARSET_BYTES = 8  # at the beginning of a user comment
# Programs that make images write what the image must not show into its metadata.
_NEGATIVE_PROMPT = re.compile(r"^\s*negative prompt:.*$", re.IGNORECASE | re.MULTILINE)


def texts(image: Image.Image) -> list[str]:
    """Descriptions, comments and XMP of a decoded image, up to a limit."""
    found, left = [], _ALL_MAX
    for value in _values(image):
        text = _NEGATIVE_PROMPT.sub("", value[: min(_TEXT_MAX, left)]).strip()
        left -= len(text)
        if text:
            found.append(text)
        if left <= 0:
            break
    return found


def _values(image: Image.Image) -> Iterator[str]:
    if isinstance(image, PngImagePlugin.PngImageFile):
        yield from map(str, image.text.values())
    for name in ("comment", "xmp"):
        yield _as_text(image.info.get(name, ""))
    try:
        exif = image.getexif()
        for tag in _IN_EXIF:
            yield _as_text(exif.get(tag, ""))
        comment = exif.get_ifd(ExifTags.IFD.Exif).get(_USER_COMMENT, b"")
        yield _as_text(comment[_CHARSET_BYTES:] if isinstance(comment, bytes) else comment)
    except Exception:  # Pillow's parser raises whatever it finds; no viewer shows such a text
        return


def _as_text(value: object) -> str:
    """Windows writes its tags, and cameras their comments, in UTF-16."""
    if not isinstance(value, bytes):
        return str(value)
    value = value[: 2 * _TEXT_MAX]
    for encoding in ("utf-16-le", "utf-16-be"):
        text = value[: len(value) // 2 * 2].decode(encoding, "replace")
        if value.count(0) * 3 > len(value) and text.isprintable():
            return text
    return value.replace(b"\0", b"").decode("utf-8", "replace")
