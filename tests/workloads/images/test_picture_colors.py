"""Colors: every mode becomes 8-bit sRGB, color profiles are applied, transparency is kept or white."""

import struct
import zlib
from functools import cache
from typing import Any

import pytest
from PIL import Image, ImageCms

from holdfast.workloads.images.variants import Format
from tests.workloads.images import builders as b
from tests.workloads.images.test_picture import (
    BLUE,
    FINEST,
    GREEN,
    RED,
    apart,
    file_of,
    is_near,
    pixel,
    quarters,
    seen,
    shown,
)

WITH_ALPHA: tuple[Format, ...] = ("webp", "avif", "png")
WHITE = (255, 255, 255)


def plain(mode: str, color: Any, kind: str = "PNG", size: tuple[int, int] = (16, 16), **options: Any) -> bytes:
    return file_of(Image.new(mode, size, color), kind, **FINEST.get(kind, {}) | options)


def grey_of(data: bytes) -> int:
    """Of a picture of one shade."""
    image = seen(data)
    assert image.mode == "RGB"
    [shade] = set(image.tobytes())
    return shade


# --- Transparency


def half_transparent(mode: str = "RGBA") -> Image.Image:
    """Left: blue; right: nothing."""
    image = Image.new("RGBA", (64, 32), (*BLUE, 255))
    image.paste((*GREEN, 0), (32, 0, 64, 32))
    return image.convert(mode)


def palette_png() -> bytes:
    """An alpha for each of three colors."""
    image = Image.new("P", (64, 32), 0)
    image.putpalette([*BLUE, *GREEN, *RED])
    image.paste(1, (32, 0, 64, 32))
    return file_of(image, "PNG", transparency=b"\xff\0\x80")


def keyed_png(mode: str) -> bytes:
    """One of its colors means transparent."""
    image = half_transparent().convert(mode)
    color = image.getpixel((60, 10))
    return file_of(image, "PNG", transparency=color)


TRANSPARENT = {
    "png": file_of(half_transparent(), "PNG"),
    "png of grey": file_of(half_transparent("LA"), "PNG"),
    "png with a palette": palette_png(),
    "png with a transparent color": keyed_png("RGB"),
    "png with a transparent grey": keyed_png("L"),
    "gif": file_of(half_transparent(), "GIF"),
    "webp": file_of(half_transparent(), "WEBP", lossless=True),
    "avif": file_of(half_transparent(), "AVIF", quality=100),
    "tiff": file_of(half_transparent(), "TIFF"),
}


@pytest.mark.parametrize("form", WITH_ALPHA)
@pytest.mark.parametrize("name", TRANSPARENT)
def test_transparency_is_kept(name: str, form: Format) -> None:
    image = seen(TRANSPARENT[name], form)
    assert image.mode == "RGBA"
    expected = half_transparent("LA" if "grey" in name else "RGBA")
    assert apart(image, expected, block=16) <= 12
    assert pixel(image, 10, 16)[3] == 255
    assert pixel(image, 55, 16)[3] == 0


@pytest.mark.parametrize("name", TRANSPARENT)
def test_what_is_transparent_is_white_in_a_jpeg(name: str) -> None:
    image = seen(TRANSPARENT[name], "jpeg")
    assert image.mode == "RGB"
    assert is_near(pixel(image, 55, 16, "RGB"), WHITE)
    assert is_near(pixel(image, 10, 16, "RGB"), pixel(half_transparent("LA" if "grey" in name else "RGBA"), 10, 16)[:3])


@pytest.mark.parametrize(("mode", "color"), [("RGBA", (255, 0, 0, 128)), ("LA", (0, 128))])
def test_what_is_half_transparent_is_half_white_in_a_jpeg(mode: str, color: tuple[int, ...]) -> None:
    found = pixel(seen(plain(mode, color), "jpeg"), 8, 8, "RGB")
    assert is_near(found, (255, 127, 127) if mode == "RGBA" else (127, 127, 127))


@pytest.mark.parametrize("form", WITH_ALPHA)
def test_every_degree_of_transparency_is_kept(form: Format) -> None:
    image = Image.new("RGBA", (64, 32), (*RED, 255))
    image.putalpha(Image.linear_gradient("L").resize((64, 32)))
    assert apart(seen(file_of(image, "PNG"), form), image, block=2) <= 8


def test_a_hidden_color_does_not_show_when_the_picture_is_made_smaller() -> None:
    image = Image.new("RGBA", (300, 40), (*BLUE, 255))
    image.paste((0, 255, 0, 0), (101, 0, 300, 40))
    for width in (20, 75, 150):
        found = seen(file_of(image, "PNG"), width=width)
        visible = [pixel(found, x, 2) for x in range(found.width) if pixel(found, x, 2)[3] > 32]
        assert 0 < len(visible) < width
        assert all(is_near(color[:3], BLUE, 20) for color in visible)


def test_a_picture_whose_alpha_is_opaque_stays_as_it_is() -> None:
    found = seen(file_of(quarters().convert("RGBA"), "PNG"))
    assert apart(found, quarters()) == 0


# --- Modes


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize(("value", "grey"), [(0, 0), (127, 0), (130, 1), (0x4000, 64), (0x8000, 128), (0xFFFF, 255)])
def test_grey_of_16_bits(kind: str, value: int, grey: int) -> None:
    assert grey_of(plain("I;16", value, kind)) == grey


def test_a_gradient_of_16_bits_is_as_bright_as_one_of_8() -> None:
    eight = Image.linear_gradient("L")
    sixteen = Image.frombytes("I;16", eight.size, b"".join(struct.pack("<H", 257 * v) for v in eight.tobytes()))
    for data in (file_of(sixteen, "PNG"), file_of(sixteen, "TIFF"), file_of(sixteen.convert("I"), "TIFF")):
        assert apart(seen(data), eight) <= 1
        assert apart(seen(data, width=60), eight.resize((60, 60), Image.Resampling.LANCZOS)) <= 2


def test_big_endian_grey_of_16_bits() -> None:
    tags = [(tag, kind, count, 16 if tag == 258 else value) for tag, kind, count, value in b.tiff_tags(4, 2, 8, 16)]
    data = b.tiff_header(24, ">") + struct.pack(">8H", *[0x4000] * 8) + b.directory(tags, order=">")
    assert shown(data).mode == "I;16B"
    assert grey_of(data) == 64


@pytest.mark.parametrize(
    ("bits", "color", "samples", "expected"),
    [
        (16, 2, (0xFFFF, 0x8000, 0x0080), (255, 128, 0, 255)),
        (16, 4, (0x8000, 0xFFFF), (128, 128, 128, 255)),
        (16, 6, (0xFFFF, 0x8000, 0x0000, 0x4000), (255, 128, 0, 64)),
        (8, 4, (0x32, 0x64), (50, 50, 50, 100)),
    ],
    ids=["RGB of 16 bits", "grey and alpha of 16 bits", "RGBA of 16 bits", "grey and alpha"],
)
def test_pngs_of_more_than_one_channel(
    bits: int, color: int, samples: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    row = b"\0" + struct.pack(f">{len(samples)}{'H' if bits == 16 else 'B'}", *samples) * 4
    data = b.png(4, 3, b.chunk(b"IDAT", zlib.compress(row * 3)), bits=bits, color=color)
    assert pixel(seen(data), 1, 1) == expected


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP"])
def test_black_and_white_of_1_bit(kind: str) -> None:
    image = Image.new("1", (64, 32), 0)
    image.paste(1, (32, 0, 64, 32))
    found = seen(file_of(image, kind))
    assert (pixel(found, 31, 5, "RGB"), pixel(found, 32, 5, "RGB")) == ((0, 0, 0), WHITE)
    assert pixel(seen(file_of(image, kind), width=1), 0, 0, "L")[0] == pytest.approx(128, abs=20)


@pytest.mark.parametrize(
    ("mode", "value", "grey"),
    [
        ("F", 0.5, 128),
        ("F", 1.0, 255),
        ("F", 2.0, 2),
        ("F", 128.0, 128),
        ("F", 255.0, 255),
        ("F", 32_768.0, 128),
        ("F", 65_535.0, 255),
        ("F", 1e6, 255),
        ("I", 1, 1),
        ("I", 128, 128),
        ("I", 255, 255),
        ("I", 32_768, 128),
        ("I", 65_535, 255),
        ("I", 2_000_000, 255),
    ],
)
def test_grey_of_32_bits_is_in_the_usual_range_that_holds_it(mode: str, value: float, grey: int) -> None:
    image = Image.new(mode, (16, 16), 0)
    image.paste(value, (8, 0, 16, 16))
    found = seen(file_of(image, "TIFF"))
    assert pixel(found, 2, 2, "RGB") == (0, 0, 0)
    assert pixel(found, 13, 2, "RGB") == (grey, grey, grey)


@pytest.mark.parametrize(("mode", "low", "high"), [("F", -3.0, 5.0), ("I", -40_000, 60_000), ("F", 0.0, 1e9)])
def test_grey_in_another_range_is_black_to_white(mode: str, low: float, high: float) -> None:
    image = Image.new(mode, (24, 8), low)
    image.paste((low + high) / 2 if mode == "F" else round((low + high) / 2), (8, 0, 16, 8))
    image.paste(high, (16, 0, 24, 8))
    found = seen(file_of(image, "TIFF"))
    assert [pixel(found, x, 4, "L")[0] for x in (4, 12, 20)] == [0, pytest.approx(128, abs=1), 255]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -2.0])
def test_grey_that_has_no_range_is_a_picture_all_the_same(value: float) -> None:
    assert seen(plain("F", value, "TIFF")).size == (16, 16)


@pytest.mark.parametrize(
    ("color", "rgb"),
    [
        ((138, 209, 198), (255, 0, 0)),
        ((255, 128, 128), WHITE),
        ((0, 128, 128), (0, 0, 0)),
        ((76, 196, 16), (0, 0, 255)),
    ],
    ids=["red", "white", "black", "blue"],
)
def test_lab(color: tuple[int, int, int], rgb: tuple[int, int, int]) -> None:
    assert is_near(pixel(seen(plain("LAB", color, "TIFF")), 8, 8, "RGB"), rgb, 30)


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
@pytest.mark.parametrize(
    ("ink", "rgb"),
    [
        ((0, 0, 0, 0), WHITE),
        ((0, 0, 0, 255), (0, 0, 0)),
        ((255, 0, 0, 0), (0, 255, 255)),
        ((0, 255, 255, 0), (255, 0, 0)),
        ((0, 0, 0, 128), (127, 127, 127)),
    ],
    ids=["white", "black", "cyan", "red", "grey"],
)
def test_cmyk(kind: str, ink: tuple[int, ...], rgb: tuple[int, int, int]) -> None:
    """That of Adobe's JPEGs is inverted; that of a TIFF is not."""
    data = plain("CMYK", ink, kind)
    assert (b"Adobe" in data) is (kind == "JPEG")
    assert is_near(pixel(seen(data), 8, 8, "RGB"), rgb)


def test_a_palette() -> None:
    palette = quarters().quantize(4)
    for kind in ("PNG", "GIF", "TIFF", "BMP"):
        data = file_of(palette, kind)
        assert shown(data).mode == "P"
        assert apart(seen(data), quarters()) <= 3


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "AVIF", "TIFF", "BMP"])
def test_grey_and_color_stay_what_they_are(kind: str, mode: str) -> None:
    image = quarters().convert(mode)
    assert apart(seen(file_of(image, kind, **FINEST.get(kind, {}))), image) <= 6


# --- Profiles


@cache
def srgb() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@cache
def swapped() -> bytes:
    """Says that red is green and green is red."""
    profile = bytearray(srgb())
    places = {bytes(profile[at : at + 4]): at for at in range(132, 132 + 12 * profile[131], 12)}
    red, green = (slice(places[tag] + 4, places[tag] + 12) for tag in (b"rXYZ", b"gXYZ"))
    profile[red], profile[green] = profile[green], profile[red]
    return bytes(profile)


@cache
def linear_grey() -> bytes:
    """The profile of grey whose numbers are amounts of light."""
    white = struct.pack(">3i", 63_190, 65_536, 54_061)
    curve = b"curv" + struct.pack(">III", 0, 1, 0x0100_0000)
    tags = {b"wtpt": b"XYZ \0\0\0\0" + white, b"kTRC": curve}
    at, table, body = 128 + 4 + 12 * len(tags), struct.pack(">I", len(tags)), b""
    for tag, data in tags.items():
        table += struct.pack(">4sII", tag, at + len(body), len(data))
        body += data
    header = struct.pack(">II", at + len(body), 0) + b"\x02\x10\0\0mntrGRAYXYZ " + bytes(12) + b"acsp" + bytes(28)
    return (header + white).ljust(128, b"\0") + table + body


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
def test_a_picture_has_the_colors_of_its_profile(kind: str) -> None:
    data = plain("RGB", (220, 40, 60), kind, icc_profile=swapped())
    assert is_near(pixel(shown(data), 8, 8, "RGB"), (220, 40, 60))
    for form in ("png", "jpeg", "webp", "avif"):
        assert is_near(pixel(seen(data, form), 8, 8, "RGB"), (40, 220, 60), 6)
    assert is_near(pixel(seen(data, width=4), 2, 2, "RGB"), (40, 220, 60))


def test_a_profile_changes_no_transparency() -> None:
    data = plain("RGBA", (220, 40, 60, 100), icc_profile=swapped())
    assert is_near(pixel(seen(data), 8, 8), (40, 220, 60, 100), 1)


def test_a_profile_is_applied_to_the_colors_of_a_palette() -> None:
    image = Image.new("P", (16, 16), 1)
    image.putpalette([*BLUE, 220, 40, 60])
    assert is_near(pixel(seen(file_of(image, "PNG", icc_profile=swapped())), 8, 8, "RGB"), (40, 220, 60))


@pytest.mark.parametrize(("mode", "color"), [("L", 128), ("LA", (128, 77))])
def test_a_profile_of_grey(mode: str, color: Any) -> None:
    """Half of the light is 188 of 255 in sRGB."""
    expected = (188, 188, 188, 77 if mode == "LA" else 255)
    assert is_near(pixel(seen(plain(mode, color, icc_profile=linear_grey())), 8, 8), expected, 1)


@pytest.mark.parametrize("profile", [srgb(), swapped()], ids=["sRGB", "swapped"])
def test_grey_with_a_profile_of_colors_stays_grey(profile: bytes) -> None:
    assert grey_of(plain("L", 100, icc_profile=profile)) == pytest.approx(100, abs=1)


def test_a_large_profile_is_applied() -> None:
    """Some printers have one of several MiB."""
    large = swapped().ljust(5_000_000, b"\0")
    assert is_near(pixel(seen(plain("RGB", (220, 40, 60), icc_profile=large)), 8, 8, "RGB"), (40, 220, 60))


def test_the_profile_of_srgb_changes_nothing() -> None:
    assert apart(seen(file_of(quarters(), "PNG", icc_profile=srgb())), quarters()) <= 1


@pytest.mark.parametrize(
    ("mode", "color", "profile"),
    [
        ("RGB", (220, 40, 60), linear_grey()),
        ("RGB", (220, 40, 60), ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()),
        ("RGB", (220, 40, 60), b"no profile"),
        ("RGB", (220, 40, 60), b"\0" * 500),
        ("RGB", (220, 40, 60), swapped()[:300]),
        ("RGB", (220, 40, 60), swapped().replace(b"rTRC", b"xxxx")),
        ("RGB", (220, 40, 60), swapped()[:16] + b"ABCD" + swapped()[20:]),
        ("CMYK", (35, 215, 195, 0), swapped()),
        ("CMYK", (35, 215, 195, 0), linear_grey()),
    ],
    ids=["grey", "LAB", "text", "zeros", "cut off", "incomplete", "unknown", "RGB for CMYK", "grey for CMYK"],
)
def test_a_profile_that_does_not_fit_is_ignored(mode: str, color: Any, profile: bytes) -> None:
    data = plain(mode, color, "TIFF", icc_profile=profile)
    assert shown(data).info["icc_profile"] == profile
    assert is_near(pixel(seen(data), 8, 8, "RGB"), (220, 40, 60), 1)


def test_no_profile_is_needed_for_cmyk() -> None:
    data = plain("CMYK", (35, 215, 195, 0), "JPEG")
    assert "icc_profile" not in shown(data).info
    assert is_near(pixel(seen(data), 8, 8, "RGB"), (220, 40, 60))
