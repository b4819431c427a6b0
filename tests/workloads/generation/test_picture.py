"""Images of providers: what is accepted, what is refused before it is decoded, thumbnails and perceptual hashes."""

import hashlib
import io
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from PIL import Image, ImageCms, ImageOps

from holdfast.workloads.generation import picture
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.picture import CheckedImage, checked, decoded, dhash, thumbnail
from tests.workloads.images import builders as b

SIZE = (96, 64)
KINDS = {"PNG": ("image/png", ".png"), "JPEG": ("image/jpeg", ".jpg"), "WEBP": ("image/webp", ".webp")}
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)" width="64" height="64"/>'
HTML = b"<!DOCTYPE html><script>alert(document.domain)</script>"


def scenery(width: int = 96, height: int = 64, seed: int = 0) -> Image.Image:
    cells = hashlib.shake_256(bytes([seed])).digest(9 * 8 * 3)
    return Image.frombytes("RGB", (9, 8), cells).resize((width, height), Image.Resampling.BICUBIC)


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def refusal(data: bytes, **options: int) -> str:
    with pytest.raises(ProviderError) as caught:
        checked(data, width=96, height=64, **options)
    assert (caught.value.code, caught.value.kind) == ("provider_bad_answer", "transient")
    return caught.value.message


# --- Accepted


@pytest.mark.parametrize("kind", KINDS)
def test_type_size_and_digest_are_those_of_the_file(kind: str) -> None:
    data = saved(scenery(), kind)
    content_type, suffix = KINDS[kind]
    expected = CheckedImage(content_type, suffix, 96, 64, hashlib.sha256(data).hexdigest(), len(data))
    assert checked(data, width=96, height=64) == expected


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "1", {}),
        ("PNG", "L", {"transparency": 7}),
        ("PNG", "LA", {}),
        ("PNG", "P", {"transparency": 0}),
        ("PNG", "RGBA", {}),
        ("PNG", "I;16", {}),
        ("JPEG", "L", {}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "RGB", {"progressive": True, "restart_marker_blocks": 2}),
        ("WEBP", "RGB", {"lossless": True}),
        ("WEBP", "RGBA", {"exif": b.exif(1), "icc_profile": b"none"}),
    ],
)
def test_every_mode_is_accepted_and_has_a_thumbnail(kind: str, mode: str, options: dict[str, object]) -> None:
    data = saved(of_mode(mode), kind, **options)
    assert checked(data, width=96, height=64).content_type == KINDS[kind][0]
    small = opened(thumbnail(data, 48))
    assert (small.format, small.size) == ("WEBP", (48, 32))
    assert small.mode in ("RGB", "RGBA")
    assert abs(brightness(small) - brightness(scenery())) < 40
    assert dhash(decoded(data)) == dhash(decoded(data))


def of_mode(mode: str) -> Image.Image:
    if mode == "I;16":
        values = b"".join(struct.pack("<H", 257 * value) for value in scenery().convert("L").tobytes())
        return Image.frombytes("I;16", SIZE, values)
    return scenery().convert(mode)


def brightness(image: Image.Image) -> int:
    return image.convert("RGB").convert("L").resize((1, 1), Image.Resampling.BOX).tobytes()[0]


def test_a_size_that_was_not_requested_is_recorded_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = checked(saved(scenery(100, 50)), width=96, height=64)
    assert (found.width, found.height) == (100, 50)
    assert "the provider returned 100 x 50 pixels instead of 96 x 64" in caplog.messages


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_to_the_size_and_the_thumbnail(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(scenery(), kind, exif=exif)
    seen = ImageOps.exif_transpose(opened(data))
    found = checked(data, width=96, height=64)
    assert (found.width, found.height) == seen.size
    small = opened(thumbnail(data))
    assert small.size == seen.size
    assert (int(dhash(small), 16) ^ int(dhash(seen), 16)).bit_count() <= 3
    assert not small.getexif()


def test_the_limits_themselves_are_allowed() -> None:
    assert checked(saved(Image.new("1", (2048, 2048))), width=2048, height=2048).width == 2048
    assert checked(saved(scenery(16, 16)), width=64, height=64).width == 16
    assert checked(saved(Image.new("RGB", (1, 1))), width=64, height=64).height == 1


# --- Refused


def of_announced_size(kind: str, width: int, height: int) -> bytes:
    if kind == "PNG":
        return b.png(width, height, b.png_data(64, 64))
    if kind == "JPEG":
        return b.jpeg_of_size(width, height)
    data = b.saved("WEBP", lossless=kind == "WEBP lossless")
    if kind == "WEBP lossless":
        return data[:21] + struct.pack("<I", (width - 1) | (height - 1) << 14) + data[25:]
    return data[:26] + struct.pack("<HH", width, height) + data[30:]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "WEBP lossless"])
@pytest.mark.parametrize("size", [(60_000, 60_000), (2048, 2049)])
def test_sizes_out_of_range_are_refused_by_the_header(
    kind: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "_loaded", lambda *_: pytest.fail("decoded"))
    width, height = (min(side, 16_383) for side in size) if kind.startswith("WEBP") else size
    assert refusal(of_announced_size(kind, width, height)).endswith(f"it has {width} x {height} pixels")


def test_the_limit_of_pixels_is_that_of_the_caller() -> None:
    assert "96 x 64" in refusal(saved(scenery()), max_pixels=96 * 64 - 1)


def test_a_canvas_of_webp_that_is_larger_than_its_image_is_refused() -> None:
    image = b.webp_chunk(b"VP8L", saved(scenery(), "WEBP", lossless=True)[20:])
    assert "another size" in refusal(b.riff(b.webp_canvas(16_000, 16_000), image))


def png_without_end() -> bytes:
    return saved(scenery())[:-12]


def jpeg_with_two_sizes() -> bytes:
    small = b.segment(0xC0, struct.pack(">BHHB", 8, 64, 64, 1) + b"\1\x11\0")
    return b.jpeg_with(small, b.jpeg_of_size(60_000, 60_000))


def jpeg_with_many_scans() -> bytes:
    data = saved(scenery(), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * 40 + data[-2:]


def png_with_two_headers() -> bytes:
    return b.png(64, 64, b.chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)), b.png_data(64, 64))


def png_with_many_chunks() -> bytes:
    return b.png(64, 64, b.chunk(b"teSt", b"") * 30_000, b.png_data(64, 64))


def png_with_a_wrong_checksum() -> bytes:
    data = saved(scenery())
    return data[:29] + b"\0\0\0\0" + data[33:]


NO_IMAGES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (bytes, "it is empty"),
    "one byte": (lambda: b"\x89", "neither PNG nor JPEG nor WebP"),
    "HTML": (lambda: HTML, "neither"),
    "SVG": (lambda: SVG, "neither"),
    "GIF": (lambda: b.saved("GIF"), "neither"),
    "BMP": (lambda: b.saved("BMP"), "neither"),
    "TIFF": (lambda: b.saved("TIFF"), "neither"),
    "AVIF": (lambda: b.saved("AVIF"), "neither"),
    "PNG signature": (lambda: b.PNG_SIGNATURE, "no header"),
    "HTML after a PNG signature": (lambda: b.PNG_SIGNATURE + HTML, "no header"),
    "PNG without its end": (png_without_end, "truncated"),
    "PNG with two headers": (png_with_two_headers, "something follows"),
    "PNG with many chunks": (png_with_many_chunks, "parts"),
    "PNG with a wrong checksum": (png_with_a_wrong_checksum, "cannot be decoded"),
    "PNG without pixels": (lambda: b.png(64, 64), "cannot be decoded"),
    "APNG": (lambda: b.animated("PNG"), "animation"),
    "JPEG signature": (lambda: b"\xff\xd8\xff", "truncated"),
    "JPEG of fill bytes": (lambda: b"\xff\xd8" + b"\xff" * 1_000_000 + b"\0", "truncated"),
    "JPEG with two sizes": (jpeg_with_two_sizes, "2 frames"),
    "JPEG with many scans": (jpeg_with_many_scans, "scans"),
    "WebP signature": (lambda: b"RIFF\x04\0\0\0WEBP", "no image"),
    "animated WebP": (lambda: b.animated("WEBP"), "animation"),
    "WebP that says it is animated": (lambda: b.riff(b.webp_canvas(64, 64, flags=0x02), b.webp_pixel()), "animation"),
    "WebP with a frame": (lambda: b.riff(b.webp_canvas(64, 64), b.webp_frame(64, 64)), "animation"),
}


@pytest.mark.parametrize(("make", "reason"), NO_IMAGES.values(), ids=NO_IMAGES)
def test_what_is_no_single_image_is_refused(make: Callable[[], bytes], reason: str) -> None:
    assert reason in refusal(make())


TRAILING = {
    "zero": b"\0",
    "HTML": HTML,
    "ZIP": b"PK\x05\x06" + bytes(18),
    "end of JPEG": b"\xff\xd9",
    "end of PNG": b.chunk(b"IEND", b""),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trailing", TRAILING.values(), ids=TRAILING)
def test_bytes_after_the_image_are_refused(kind: str, trailing: bytes) -> None:
    refusal(saved(scenery(), kind) + trailing)


def test_bytes_between_the_image_and_the_end_that_riff_announces_are_refused() -> None:
    data = saved(scenery(), "WEBP") + HTML[:20]
    refusal(data[:4] + struct.pack("<I", len(data) - 8) + data[8:])


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncated_file_is_refused(kind: str) -> None:
    data = saved(scenery(), kind)
    for length in {*range(40), *range(40, len(data), 97), len(data) - 1}:
        refusal(data[:length])


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_or_accepted_and_nothing_else(kind: str) -> None:
    data = saved(scenery(), kind)
    for number in range(300):
        damaged, chance = bytearray(data), hashlib.sha256(b"%d" % number).digest()
        for at in range(0, 8, 4):
            damaged[int.from_bytes(chance[at : at + 3]) % len(data)] = chance[at + 3]
        try:
            found = checked(bytes(damaged), width=96, height=64)
        except ProviderError:
            continue
        assert found.width * found.height <= picture.MAX_PIXELS
        thumbnail(bytes(damaged))


@pytest.mark.parametrize(
    "bomb",
    [
        lambda zeros: b.chunk(b"zTXt", b"Comment\0\0" + zeros),
        lambda zeros: b.chunk(b"iCCP", b"ICC\0\0" + zeros),
        lambda zeros: b.chunk(b"iTXt", b"Comment\0\1\0\0\0" + zeros),
    ],
    ids=["zTXt", "iCCP", "iTXt"],
)
def test_compressed_metadata_is_not_inflated_without_limit(bomb: Callable[[bytes], bytes]) -> None:
    data = b.png(64, 64, bomb(b.deflated_zeros(300_000_000)), b.png_data(64, 64))
    assert peak_of(lambda: refusal(data)) < 20_000_000


def test_image_data_beyond_the_announced_size_is_not_inflated() -> None:
    data = b.png(64, 64, b.chunk(b"IDAT", b.deflated_zeros(300_000_000)))
    assert peak_of(lambda: checked(data, width=64, height=64)) < 20_000_000


def peak_of(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_memory_is_not_the_fault_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image, "open", no_memory)
    with pytest.raises(MemoryError):
        checked(b.png(64, 64, b.png_data(64, 64)), width=64, height=64)


# --- Thumbnails


@pytest.mark.parametrize(
    ("size", "small"), [((1024, 768), (384, 288)), ((768, 1024), (288, 384)), ((2048, 16), (384, 3)), (SIZE, SIZE)]
)
def test_the_longest_side_is_limited_and_nothing_is_enlarged(size: tuple[int, int], small: tuple[int, int]) -> None:
    assert opened(thumbnail(saved(scenery(*size)))).size == small


def test_a_thumbnail_has_no_metadata() -> None:
    exif = Image.Exif()
    exif[0x010E] = "a secret"
    data = saved(scenery(), "JPEG", exif=exif, comment=b"a secret", xmp=b"<x>a secret</x>", icc_profile=srgb())
    small = thumbnail(data)
    assert b"secret" not in small
    assert not {"exif", "icc_profile", "xmp"} & opened(small).info.keys()


def srgb() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def test_transparency_is_kept() -> None:
    image = scenery().convert("RGBA")
    image.paste((0, 0, 0, 0), (0, 0, 48, 64))
    small = opened(thumbnail(saved(image)))
    assert small.mode == "RGBA"
    assert (small.getpixel((10, 30))[3], small.getpixel((80, 30))[3]) == (0, 255)


def with_swapped_primaries() -> bytes:
    """sRGB, but red and blue have each other's place."""
    profile = srgb()
    return profile.replace(b"rXYZ", b"tEMP", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"tEMP", b"bXYZ", 1)


def test_a_color_profile_is_applied() -> None:
    red = Image.new("RGB", SIZE, (250, 5, 5))
    red_in_file = opened(thumbnail(saved(red, icc_profile=srgb()))).getpixel((40, 30))
    swapped = opened(thumbnail(saved(red, icc_profile=with_swapped_primaries()))).getpixel((40, 30))
    assert red_in_file[0] > 200 > red_in_file[2]
    assert swapped[2] > 200 > swapped[0]


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("profile", [b"", b"damaged", b"\0" * 500])
def test_a_damaged_color_profile_is_ignored(mode: str, profile: bytes) -> None:
    data = saved(scenery().convert(mode), "JPEG" if mode == "CMYK" else "PNG", icc_profile=profile)
    assert opened(thumbnail(data)).size == SIZE


# --- Perceptual hashes


@pytest.mark.parametrize("seed", range(5))
def test_copies_have_nearly_the_same_hash_and_others_do_not(seed: int) -> None:
    image = scenery(400, 300, seed)
    original = dhash(image)
    assert len(original) == 16
    for copy in (
        opened(saved(image.resize((137, 99)), "JPEG", quality=40)),
        opened(saved(image.convert("RGBA"), "WEBP", quality=50)),
        image.convert("L"),
    ):
        assert (int(original, 16) ^ int(dhash(copy), 16)).bit_count() <= 4
    for other in (ImageOps.mirror(image), ImageOps.invert(image), scenery(400, 300, seed + 50)):
        assert (int(original, 16) ^ int(dhash(other), 16)).bit_count() >= 12


def test_the_hash_is_that_of_the_difference_to_the_right() -> None:
    ramp = Image.linear_gradient("L").rotate(90)
    assert dhash(ramp) == 16 * "f"
    assert dhash(ImageOps.mirror(ramp)) == 16 * "0"
