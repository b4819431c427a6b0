"""Nothing but the pixels of an upload is in its variants: no place, no name, no comment, no profile."""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image, PngImagePlugin, TiffImagePlugin

from holdfast.workloads.images.picture import Picture
from holdfast.workloads.images.variants import Format
from tests.workloads.images import builders as b
from tests.workloads.images.test_picture import FORMATS, LIMITS, file_of, quarters, shown, variant_of
from tests.workloads.images.test_picture_colors import srgb

SECRET = "Agnes-4711"
XMP = f"<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf>{SECRET}</rdf></x:xmpmeta>".encode()
IPTC = b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\x0f\x1c\x02\x50\0\x0a" + SECRET.encode() + b"\0"
ANIMATED: tuple[Format, ...] = ("webp", "avif")
# What Pillow tells of each format though the file has no metadata.
OF_THE_FORMAT = {
    "jpeg": {"jfif", "jfif_version", "jfif_unit", "jfif_density", "progressive", "progression"},
    "png": set[str](),
    "webp": {"loop", "background", "timestamp", "duration"},
    "avif": {"timestamp", "duration"},
}


def exif(orientation: int = 1) -> Image.Exif:
    found = Image.Exif()
    found[0x0112] = orientation
    found[0x010E] = found[0x013B] = SECRET
    found.get_ifd(0x8825).update({1: "N", 2: (48.0, 8.0, 12.0), 3: "E", 4: (11.0, 34.0, 0.0), 29: SECRET})
    return found


def jpeg() -> bytes:
    data = file_of(quarters(), "JPEG", exif=exif(6), xmp=XMP, comment=SECRET, icc_profile=srgb(), dpi=(300, 300))
    return b.jpeg_with(b.segment(0xED, IPTC) + b.segment(0xEF, SECRET.encode()), data) + SECRET.encode()


def png_text() -> PngImagePlugin.PngInfo:
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", SECRET)
    text.add_text("Author", SECRET, zip=True)
    text.add_itxt("XML:com.adobe.xmp", XMP.decode())
    text.add(b"prVt", SECRET.encode())
    text.add(b"prVt", SECRET.encode(), after_idat=True)
    return text


def png(**options: Any) -> bytes:
    data = file_of(quarters(), "PNG", exif=exif(), pnginfo=png_text(), icc_profile=srgb(), dpi=(300, 300), **options)
    return data + SECRET.encode()


def webp(**options: Any) -> bytes:
    data = file_of(quarters(), "WEBP", exif=exif(6), xmp=XMP, icc_profile=srgb(), **options)
    body = data[8:] + b.webp_chunk(b"PRVT", SECRET.encode())
    return b"RIFF" + struct.pack("<I", len(body)) + body


def avif(**options: Any) -> bytes:
    return file_of(quarters(), "AVIF", exif=exif(), xmp=XMP, icc_profile=srgb(), **options)


def tiff() -> bytes:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags.tagtype[700] = tags.tagtype[33723] = 7
    tags[700], tags[33723], tags[270], tags[315] = XMP, IPTC, SECRET, SECRET
    return file_of(quarters(), "TIFF", tiffinfo=tags, exif=exif(), icc_profile=srgb(), dpi=(300, 300))


def gif(**options: Any) -> bytes:
    data = file_of(quarters(), "GIF", comment=SECRET, **options)
    xmp = b"!\xff\x0bXMP DataXMP" + bytes([len(XMP)]) + XMP + b"\0"
    return data[:-1] + xmp + b";" + SECRET.encode()


STILLS = {"jpeg": jpeg, "png": png, "webp": webp, "avif": avif, "tiff": tiff, "gif": gif}
MOVING = {"png": png, "webp": webp, "avif": avif, "gif": gif}
TWO_FRAMES: dict[str, Any] = {
    "save_all": True,
    "append_images": [quarters().transpose(Image.Transpose.FLIP_LEFT_RIGHT)],
    "duration": 50,
}


def chunks_of_png(data: bytes) -> Iterator[bytes]:
    at = 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8]
        at += 12 + length


def chunks_of_webp(data: bytes) -> Iterator[bytes]:
    assert struct.unpack_from("<I", data, 4) == (len(data) - 8,)
    at = 12
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 4)
        yield data[at : at + 4]
        at += 8 + length + length % 2


def segments_of_jpeg(data: bytes) -> Iterator[int]:
    at = 2
    while data[at + 1] != 0xDA:
        yield data[at + 1]
        at += 2 + int.from_bytes(data[at + 2 : at + 4])


def check_is_bare(data: bytes, form: Format) -> None:
    """Only what the pixels need."""
    for word in (SECRET.encode(), b"xmpmeta", b"Exif", b"acsp", b"Photoshop"):
        assert word not in data
    image = shown(data)
    assert {*image.info} <= OF_THE_FORMAT[form]
    assert not image.getexif()
    if form == "png":
        assert {*chunks_of_png(data)} == {b"IHDR", b"IDAT", b"IEND"}
    elif form == "webp":
        assert {*chunks_of_webp(data)} <= {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF"}
    elif form == "jpeg":
        assert not {*range(0xE1, 0xF0), 0xFE} & {*segments_of_jpeg(data)}
        assert data.endswith(b"\xff\xd9")
    else:
        assert not re.search(rb"Exif|mime|uri |prof|rICC|udta", data)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", STILLS)
def test_a_still_has_no_metadata(kind: str, form: Format) -> None:
    data = STILLS[kind]()
    assert SECRET.encode() in data
    for largest in (None, [variant_of(form, width=8)]):
        picture = Picture.open(data, LIMITS, largest=largest)
        for variant in (variant_of(form), variant_of(form, width=8), variant_of(form, height=90, fit="contain")):
            check_is_bare(picture.render(variant).data, form)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", MOVING)
def test_an_animation_has_no_metadata(kind: str, form: Format) -> None:
    data = MOVING[kind](**TWO_FRAMES)
    assert SECRET.encode() in data
    picture = Picture.open(data, LIMITS)
    assert picture.frames == 2
    for variant in (variant_of(form), variant_of(form, width=8)):
        rendered = picture.render(variant)
        assert rendered.frames == (2 if form in ANIMATED else 1)
        check_is_bare(rendered.data, form)


@pytest.mark.parametrize("form", FORMATS)
def test_the_transparent_color_of_a_palette_is_not_kept_as_metadata(form: Format) -> None:
    data = file_of(quarters().quantize(4), "PNG", transparency=0, gamma=0.45)
    check_is_bare(Picture.open(data, LIMITS).render(variant_of(form)).data, form)


def test_the_sources_of_these_tests_have_what_they_look_for() -> None:
    assert {"exif", "xmp", "comment", "icc_profile", "photoshop", "dpi"} <= {*shown(jpeg()).info}
    assert {"exif", "xmp", "Comment", "Author", "icc_profile", "dpi"} <= {*shown(png()).info}
    assert {"exif", "xmp", "icc_profile"} <= {*shown(webp()).info} & {*shown(avif()).info}
    assert {"exif", "xmp", "icc_profile"} <= {*shown(webp(**TWO_FRAMES)).info} & {*shown(avif(**TWO_FRAMES)).info}
    assert {"xmp", "icc_profile", "photoshop", "dpi"} - {*shown(tiff()).info} <= {"photoshop", "xmp"}
    assert shown(tiff()).getexif()[270] == SECRET
    assert shown(gif()).info["comment"] == SECRET.encode()
    assert shown(jpeg()).getexif().get_ifd(0x8825)[29] == SECRET
    with pytest.raises(AssertionError):
        check_is_bare(png(), "png")
    assert zlib.compress(SECRET.encode()) in png()
