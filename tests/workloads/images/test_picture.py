"""A picture as seen, in sizes and formats; what is too large or damaged."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import AvifImagePlugin, Image, ImageChops, ImageOps, PngImagePlugin

from holdfast.workloads.images.decode import decoding, load_reduced, opened
from holdfast.workloads.images.faults import CORRUPT, TOO_MANY_FRAMES, TOO_MANY_PIXELS, UNSUPPORTED, ImageFault
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.picture import Picture, Rendered
from holdfast.workloads.images.variants import QUALITY, Fit, Format, Variant
from tests.workloads.images import builders as b
from tests.workloads.images.hostile import KINDS, cut, exif_loop, jpeg_exif, jpeg_scans, noise

LIMITS = ImageLimits(max_pixels=10_000_000, max_frames=100, max_animation_pixels=20_000_000)
FORMATS: tuple[Format, ...] = ("jpeg", "webp", "avif", "png")
RED, GREEN, BLUE, YELLOW, WHITE = (220, 30, 30), (30, 200, 40), (30, 60, 220), (230, 220, 40), (255, 255, 255)
# What keeps the pixels as they are, or nearly so.
FINEST: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 98, "subsampling": "4:4:4"},
    "WEBP": {"lossless": True},
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
}


def quarters(width: int = 64, height: int = 32) -> Image.Image:
    """No two of its eight orientations are alike."""
    image = Image.new("RGB", (width, height), RED)
    image.paste(GREEN, (width // 2, 0, width, height // 2))
    image.paste(BLUE, (0, height // 2, width // 2, height))
    image.paste(YELLOW, (width // 2, height // 2, width, height))
    return image


def smooth(width: int, height: int) -> Image.Image:
    """Gradients in different directions."""
    grey = Image.linear_gradient("L").resize((width, height))
    return Image.merge("RGB", (grey, ImageOps.flip(grey), Image.radial_gradient("L").resize((width, height))))


def noisy(width: int, height: int) -> Image.Image:
    return Image.frombytes("RGB", (width, height), noise(width * height * 3))


def file_of(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def variant_of(form: Format = "png", width: int | None = 16_383, **more: Any) -> Variant:
    """Unless told otherwise: in the size of the picture, without loss."""
    return Variant(form, width=width, **more)


def render(data: bytes, form: Format = "png", **variant: Any) -> Rendered:
    return Picture.open(data, LIMITS).render(variant_of(form, **variant))


def shown(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def seen(data: bytes, form: Format = "png", **variant: Any) -> Image.Image:
    """What a variant looks like."""
    return shown(render(data, form, **variant).data)


def apart(left: Image.Image, right: Image.Image, block: int = 1) -> int:
    """The largest difference of any channel; of the means of blocks of pixels. What is transparent has no color."""
    assert left.size == right.size
    one, other = (image.convert("RGBA").convert("RGBa").reduce(block) for image in (left, right))
    return max(ImageChops.difference(one, other).tobytes())


def pixel(image: Image.Image, x: int, y: int, mode: str = "RGBA") -> tuple[int, ...]:
    return tuple(image.convert(mode).crop((x, y, x + 1, y + 1)).tobytes())


def is_near(left: tuple[int, ...], right: tuple[int, ...], tolerance: int = 4) -> bool:
    return max(abs(one - other) for one, other in zip(left, right, strict=True)) <= tolerance


def fault_of(call: Callable[[], object]) -> str:
    with pytest.raises(ImageFault) as caught:
        call()
    assert caught.value.message
    return caught.value.code


# --- What is known of it


@pytest.mark.parametrize("kind", KINDS.values())
def test_its_size_and_format_are_known_once_it_is_open(kind: str) -> None:
    picture = Picture.open(b.saved(kind), LIMITS)
    assert (picture.width, picture.height, picture.frames, picture.format) == (37, 21, 1, kind.lower())


def test_a_photo_with_previews_is_a_jpeg() -> None:
    photo = file_of(quarters(), "MPO", save_all=True, append_images=[quarters(24, 16)])
    picture = Picture.open(photo, LIMITS)
    assert shown(photo).format == "MPO"
    assert (picture.width, picture.height, picture.frames, picture.format) == (64, 32, 1, "jpeg")
    rendered = picture.render(variant_of("jpeg"))
    assert (rendered.width, rendered.height, rendered.frames) == (64, 32, 1)
    assert shown(rendered.data).format == "JPEG"
    assert apart(shown(rendered.data), quarters(), block=16) <= 12


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "AVIF"])
def test_a_file_gives_the_same_as_its_bytes(tmp_path: Path, kind: str) -> None:
    data = file_of(quarters(), kind)
    path = tmp_path / "picture"
    path.write_bytes(data)
    from_path, from_bytes = Picture.open(path, LIMITS), Picture.open(data, LIMITS)
    assert from_path.render(variant_of("webp")) == from_bytes.render(variant_of("webp"))
    assert from_path.fingerprint() == from_bytes.fingerprint()


def test_a_file_that_is_missing_is_no_fault_of_the_image(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Picture.open(tmp_path / "missing", LIMITS)


# --- Orientation


def turned(image: Image.Image, orientation: int) -> Image.Image:
    image = image.copy()
    image.getexif()[0x0112] = orientation
    return ImageOps.exif_transpose(image)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_a_picture_is_upright_whatever_its_orientation(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file_of(quarters(), kind, exif=exif, **FINEST.get(kind, {}))
    upright = turned(quarters(), orientation)
    picture = Picture.open(data, LIMITS)
    assert (picture.width, picture.height) == upright.size
    found = shown(picture.render(variant_of()).data)
    assert apart(found, upright) <= 6
    assert not found.getexif()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_oriented_picture_is_cut_and_made_smaller_as_if_it_were_upright(kind: str, orientation: int) -> None:
    image = smooth(400, 300)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file_of(image, kind, exif=exif, **FINEST.get(kind, {}))
    upright = file_of(turned(image, orientation), "PNG")
    for variant in (
        variant_of(width=40, height=90, fit="cover"),
        variant_of(width=90, height=40, fit="cover"),
        variant_of(width=40, height=90, fit="contain"),
        variant_of(width=60, height=None),
    ):
        found = Picture.open(data, LIMITS, largest=[variant]).render(variant)
        expected = Picture.open(upright, LIMITS).render(variant)
        assert found[1:] == expected[1:]
        assert apart(shown(found.data), shown(expected.data)) <= 8


@pytest.mark.parametrize(
    "exif",
    [b.exif(0), b.exif(9), b.exif(65_535), b.exif(6)[:12], b"MM\0*\xff\xff\xff\xff", b"no EXIF at all"],
    ids=["0", "9", "65535", "cut off", "outside", "text"],
)
def test_an_orientation_that_cannot_be_is_none(exif: bytes) -> None:
    data = jpeg_exif(b"Exif\0\0" + exif)
    assert Picture.open(data, LIMITS).render(variant_of()) == render(b.saved("JPEG"))


def test_an_orientation_is_found_in_odd_exif_data() -> None:
    for exif in (b"Exif\0\0" + b.exif(6, order=">"), b"Exif\0\0" + b.exif(6, kind=4), exif_loop()):
        picture = Picture.open(jpeg_exif(exif), LIMITS)
        assert (picture.width, picture.height) == (21, 37)


# --- Size


@pytest.mark.parametrize("fit", ["inside", "cover"])
@pytest.mark.parametrize("form", FORMATS)
def test_a_picture_is_never_enlarged(form: Format, fit: Fit) -> None:
    rendered = render(file_of(quarters(64, 32), "PNG"), form, width=640, height=320, fit=fit)
    assert (rendered.width, rendered.height) == shown(rendered.data).size == (64, 32)
    assert apart(shown(rendered.data), quarters(64, 32), block=16) <= 12


def test_pixels_that_need_no_change_are_not_changed() -> None:
    image = noisy(60, 40)
    data = file_of(image, "PNG")
    assert apart(seen(data, width=60, height=40), image) == 0
    assert apart(seen(data, width=60, height=10, fit="cover"), image.crop((0, 15, 60, 25))) == 0
    assert apart(seen(data, width=120, height=40, fit="cover"), image.crop((0, 10, 60, 30))) == 0


@pytest.mark.parametrize("size", [(100, 75), (37, 28), (399, 299)])
def test_a_smaller_picture_is_resized_with_care(size: tuple[int, int]) -> None:
    image = smooth(400, 300)
    found = seen(file_of(image, "PNG"), width=size[0])
    assert apart(found, image.resize(size, Image.Resampling.LANCZOS)) <= 3


@pytest.mark.parametrize("width", [70, 100, 180])
def test_noise_is_resized_with_care(width: int) -> None:
    image = noisy(400, 300)
    expected = image.resize((width, round(width * 0.75)), Image.Resampling.LANCZOS)
    assert apart(seen(file_of(image, "PNG"), width=width), expected) <= 3


def test_fine_stripes_become_grey() -> None:
    stripes = Image.new("RGB", (256, 256))
    for x in range(0, 256, 2):
        stripes.paste(WHITE, (x, 0, x + 1, 256))
    assert apart(seen(file_of(stripes, "PNG"), width=16), Image.new("RGB", (16, 16), (128, 128, 128))) <= 20


def test_cover_shows_the_middle() -> None:
    image = Image.new("RGB", (300, 100), GREEN)
    image.paste(RED, (0, 0, 100, 100))
    image.paste(BLUE, (200, 0, 300, 100))
    data = file_of(image, "PNG")
    found = seen(data, width=50, height=50, fit="cover")
    assert found.size == (50, 50)
    assert apart(found.crop((3, 0, 47, 50)), Image.new("RGB", (44, 50), GREEN)) == 0
    wide = seen(data, width=150, height=25, fit="cover")
    assert [pixel(wide, x, 12, "RGB") for x in (10, 75, 140)] == [RED, GREEN, BLUE]


@pytest.mark.parametrize("form", FORMATS)
def test_contain_pads_with_white_or_transparency(form: Format) -> None:
    rendered = render(file_of(Image.new("RGB", (80, 40), BLUE), "PNG"), form, width=40, height=40, fit="contain")
    found = shown(rendered.data)
    assert (rendered.width, rendered.height) == found.size == (40, 40)
    padding = (255, 255, 255, 255) if form == "jpeg" else (0, 0, 0, 0)
    for y in (0, 6, 33, 39):
        assert is_near(pixel(found.convert("RGBA").convert("RGBa"), 20, y, "RGBa"), padding)
    for y in (13, 20, 26):
        assert is_near(pixel(found, 20, y), (*BLUE, 255), 8)


def test_contain_puts_a_small_picture_in_the_middle() -> None:
    found = seen(file_of(Image.new("RGB", (7, 5), BLUE), "PNG"), width=20, height=10, fit="contain")
    expected = Image.new("RGBA", (20, 10), (255, 255, 255, 0))
    expected.paste((*BLUE, 255), (6, 2, 13, 7))
    assert found.tobytes() == expected.tobytes()


def test_contain_that_needs_no_padding_has_no_transparency() -> None:
    assert seen(file_of(quarters(48, 32), "PNG"), width=24, height=16, fit="contain").mode == "RGB"


@pytest.mark.parametrize("size", [(1, 3000), (3000, 1)])
@pytest.mark.parametrize("form", FORMATS)
def test_a_line_of_pixels_is_a_picture(form: Format, size: tuple[int, int]) -> None:
    rendered = render(file_of(Image.new("RGB", size, RED), "PNG"), form, width=320, height=320)
    assert shown(rendered.data).size == (rendered.width, rendered.height)
    assert {rendered.width, rendered.height} == {1, 320}


@pytest.mark.parametrize(("form", "longest"), [("webp", 16_383), ("jpeg", 65_500), ("avif", 32_768), ("png", 65_535)])
def test_the_longest_picture_fits_into_each_format(form: Format, longest: int) -> None:
    data = b.png(65_535, 1, b.png_data(65_535, 1))
    rendered = render(data, form, width=None, height=16)
    assert shown(rendered.data).size == (rendered.width, rendered.height) == (longest, 1)


# --- Decoded only as large as needed


@pytest.mark.parametrize(
    ("kind", "scale", "size", "times"),
    [
        ("JPEG", 1.0, (800, 600), 1),
        ("JPEG", 0.6, (800, 600), 1),
        ("JPEG", 0.5, (400, 300), 2),
        ("JPEG", 0.125, (100, 75), 8),
        ("JPEG", 0.01, (25, 19), 32),
        ("PNG", 1.0, (800, 600), 1),
        ("PNG", 0.2, (800, 600), 1),
        ("PNG", 0.1, (267, 200), 3),
        ("PNG", 0.01, (25, 19), 33),
    ],
)
def test_only_the_pixels_that_are_needed_are_kept(kind: str, scale: float, size: tuple[int, int], times: int) -> None:
    with decoding(LIMITS), opened(file_of(smooth(800, 600), kind)) as image:
        found, reduced = load_reduced(image, scale, 3)
    assert (found.size, reduced) == (size, times)
    assert apart(found, smooth(800, 600).resize(size, Image.Resampling.BOX)) <= 20


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("width", [3, 40, 99, 200, 601])
def test_a_picture_that_is_opened_for_its_variants_looks_the_same(kind: str, width: int) -> None:
    data = file_of(smooth(801, 601), kind, **FINEST.get(kind, {}))
    variants = [variant_of(width=width), variant_of(width=width, height=width, fit="cover")]
    full, reduced = Picture.open(data, LIMITS), Picture.open(data, LIMITS, largest=variants)
    for variant in variants:
        found = reduced.render(variant)
        assert found.width == width
        assert apart(shown(found.data), shown(full.render(variant).data)) <= 8


# --- Formats


@pytest.mark.parametrize("form", FORMATS)
def test_a_variant_is_in_its_format(form: Format) -> None:
    image = seen(file_of(smooth(64, 48), "PNG"), form)
    assert str(image.format).lower() == form
    assert image.mode == "RGB"
    assert apart(image, smooth(64, 48), block=8) <= 6


def test_jpegs_are_progressive_with_coarse_colors() -> None:
    for data in (file_of(quarters(), "PNG"), file_of(quarters(), "MPO", save_all=True, append_images=[quarters()])):
        image = seen(data, "jpeg")
        assert image.info["progressive"] == 1
        assert [layer[1:3] for layer in getattr(image, "layer")] == [(2, 2), (1, 1), (1, 1)]  # noqa: B009 - of JPEG


@pytest.mark.parametrize("form", ["jpeg", "webp", "avif"])
def test_a_higher_quality_takes_more_bytes_and_is_nearer(form: Format) -> None:
    image = noisy(64, 64)
    data = file_of(image, "PNG")
    found = [render(data, form, quality=quality).data for quality in (5, 50, 95)]
    assert len(found[0]) < len(found[1]) < len(found[2])
    assert apart(shown(found[0]), image, block=2) > apart(shown(found[2]), image, block=2)


@pytest.mark.parametrize("form", FORMATS)
def test_a_variant_without_a_quality_has_that_of_its_format(form: Format) -> None:
    data = file_of(smooth(64, 48), "PNG")
    assert render(data, form) == render(data, form, quality=QUALITY[form])
    assert (render(data, form, quality=30) == render(data, form)) is (form == "png")


# --- Limits


def limited(pixels: int = 1000, frames: int = 10, together: int = 5000) -> ImageLimits:
    return ImageLimits(pixels, frames, together)


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_picture_of_too_many_pixels_is_not_opened(kind: str) -> None:
    data = b.saved(kind, (40, 25))
    assert Picture.open(data, limited(pixels=1000)).width == 40
    assert fault_of(lambda: Picture.open(data, limited(pixels=999))) == TOO_MANY_PIXELS


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "AVIF", "PNG"])
def test_an_animation_beyond_a_limit_is_not_opened(kind: str) -> None:
    data = b.animated(kind, frames=5, size=(40, 25))
    assert Picture.open(data, limited(frames=5, together=5000)).frames == 5
    assert fault_of(lambda: Picture.open(data, limited(frames=4))) == TOO_MANY_FRAMES
    assert fault_of(lambda: Picture.open(data, limited(together=4999))) == TOO_MANY_PIXELS
    assert fault_of(lambda: Picture.open(data, limited(pixels=999))) == TOO_MANY_PIXELS


def test_the_limit_of_animations_is_not_for_stills() -> None:
    assert Picture.open(b.saved("PNG", (40, 25)), limited(together=1)).frames == 1


def test_pages_of_a_document_are_not_frames() -> None:
    pages = [Image.new("L", (40, 25), shade) for shade in (10, 200, 90)]
    data = file_of(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    picture = Picture.open(data, limited(frames=1, together=1))
    assert picture.frames == 1
    assert pixel(shown(picture.render(variant_of("webp")).data), 20, 12, "L") == (10,)


def test_a_jpeg_of_too_many_scans_is_not_opened() -> None:
    most = limited(pixels=40 * 40)
    assert Picture.open(jpeg_scans(32, side=40), most).width == 40
    assert fault_of(lambda: Picture.open(jpeg_scans(33, side=40), most)) == TOO_MANY_PIXELS
    assert fault_of(lambda: Picture.open(jpeg_scans(501, side=8), LIMITS)) == TOO_MANY_PIXELS
    assert Picture.open(jpeg_scans(500, side=8), LIMITS).width == 8


def test_scans_in_a_comment_are_not_counted() -> None:
    comment = b.segment(0xFE, b"\xff\xda\0\2" * 600)
    assert Picture.open(b.jpeg_with(comment), LIMITS).width == 37
    late = b.jpeg_with(comment, jpeg_scans(501, side=8))
    assert fault_of(lambda: Picture.open(late, LIMITS)) == TOO_MANY_PIXELS


@pytest.mark.parametrize("data", [b.saved("PNG"), b.saved("JPEG", (4000, 3000))], ids=["fine", "too large"])
def test_the_limits_of_pillow_are_as_before_afterwards(data: bytes) -> None:
    def of_pillow() -> tuple[Any, ...]:
        return Image.MAX_IMAGE_PIXELS, AvifImagePlugin.DEFAULT_MAX_THREADS, PngImagePlugin.MAX_TEXT_CHUNK

    before, limits = of_pillow(), limited(pixels=1000)
    if len(data) > 5000:
        fault_of(lambda: Picture.open(data, limits))
    else:
        Picture.open(data, limits).render(variant_of())
    assert before == of_pillow()


# --- Damage


@pytest.mark.parametrize(
    "data",
    [b"hello, world", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7 ", bytes(100), b.saved("ICO", (16, 16))],
    ids=["text", "svg", "pdf", "zeros", "icon"],
)
def test_another_type_is_unsupported(data: bytes) -> None:
    assert fault_of(lambda: Picture.open(data, LIMITS)) == UNSUPPORTED


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_file_that_ends_early_is_corrupt(kind: str) -> None:
    assert fault_of(lambda: Picture.open(cut(kind), LIMITS)) == CORRUPT
    assert fault_of(lambda: Picture.open(b.saved(kind)[:16], LIMITS)) == CORRUPT


def test_an_empty_file_is_corrupt() -> None:
    with pytest.raises(ImageFault, match="the file is empty") as caught:
        Picture.open(b"", LIMITS)
    assert caught.value.code == CORRUPT


def test_a_png_with_a_long_text_is_fine() -> None:
    text = b.chunk(b"zTXt", b"Comment\0\0" + b.deflated_zeros(10_000_000))
    assert Picture.open(b.png(8, 8, text, b.png_data(8, 8)), LIMITS).width == 8


def test_a_png_whose_metadata_are_a_bomb_is_corrupt() -> None:
    """Though its pixels come first."""
    data = b.png(8, 8, b.png_data(8, 8), b.chunk(b"zTXt", b"Comment\0\0" + b.deflated_zeros(100_000_000)))
    assert fault_of(lambda: Picture.open(data, LIMITS)) == CORRUPT
