"""Difference hash, blurhash and dominant color, checked by what is known of the pictures."""

import io
import math
import random
from collections.abc import Callable
from functools import reduce

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from holdfast.workloads.images.fingerprint import THUMBNAIL, Fingerprint, blurhash, dhash, fingerprint
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.picture import Picture
from holdfast.workloads.images.variants import Variant

LIMITS = ImageLimits(max_pixels=10_000_000, max_frames=10, max_animation_pixels=10_000_000)
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"
RED, GREEN, BLUE, WHITE, BLACK = (230, 20, 20), (20, 200, 60), (20, 40, 220), (255, 255, 255), (0, 0, 0)

RGB = tuple[int, int, int]


def painted(width: int, height: int, color: Callable[[int, int], RGB]) -> Image.Image:
    pixels = (color(x, y) for y in range(height) for x in range(width))
    return Image.frombytes("RGB", (width, height), bytes(value for pixel in pixels for value in pixel))


def halves(left: RGB, right: RGB, size: tuple[int, int] = THUMBNAIL, share: float = 0.5) -> Image.Image:
    image = Image.new("RGB", size, right)
    image.paste(left, (0, 0, round(size[0] * share), size[1]))
    return image


def scenery(width: int, height: int, seed: int = 1) -> Image.Image:
    """Coarse noise in color, as smooth as a photo out of focus."""
    chance = random.Random(seed)
    cells = Image.frombytes("RGB", (9, 8), chance.randbytes(9 * 8 * 3))
    return cells.resize((width, height), Image.Resampling.BICUBIC)


def fingerprint_of(image: Image.Image, kind: str = "PNG", **options: object) -> Fingerprint:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return Picture.open(file.getvalue(), LIMITS).fingerprint()


def different_bits(left: str, right: str) -> int:
    return (int(left, 16) ^ int(right, 16)).bit_count()


def number(text: str) -> int:
    return reduce(lambda value, digit: value * 83 + DIGITS.index(digit), text, 0)


def linear(value: int) -> float:
    part = value / 255
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def gamma(part: float) -> int:
    part = min(1.0, max(0.0, part))
    return round(255 * (part * 12.92 if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055))


def components_of(text: str) -> tuple[int, int]:
    return number(text[0]) % 9 + 1, number(text[0]) // 9 + 1


def average_of(text: str) -> RGB:
    red, green, blue = number(text[2:6]).to_bytes(3)
    return red, green, blue


def decoded(text: str, x: float, y: float) -> RGB:
    """The color at a place of the blurred picture; its sides have length 1. As blurha.sh describes it."""
    across, down = components_of(text)
    assert len(text) == 4 + 2 * across * down
    largest = (number(text[1]) + 1) / 166
    factors = [[linear(value) for value in average_of(text)]]
    for at in range(6, len(text), 2):
        value = number(text[at : at + 2])
        parts = [(value // 361 - 9) / 9, (value // 19 % 19 - 9) / 9, (value % 19 - 9) / 9]
        factors.append([math.copysign(part * part, part) * largest for part in parts])
    waves = [math.cos(math.pi * i * x) * math.cos(math.pi * j * y) for j in range(down) for i in range(across)]
    red, green, blue = (
        gamma(sum(wave * factor[channel] for wave, factor in zip(waves, factors, strict=True))) for channel in range(3)
    )
    return red, green, blue


def distance(left: RGB, right: RGB) -> int:
    return max(abs(one - other) for one, other in zip(left, right, strict=True))


# --- Blurhash


@pytest.mark.parametrize(
    ("image", "components", "text"),
    [
        (painted(4, 4, lambda x, y: BLACK), (4, 3), "L00000fQfQfQfQfQfQfQfQfQfQfQ"),
        (painted(4, 4, lambda x, y: WHITE), (4, 3), "L~TSUA~qfQ~q~q%MfQ%MfQfQfQfQ"),
        (
            painted(16, 16, lambda x, y: (255, 0, 0) if (x // 4 + y // 4) % 2 else (0, 0, 255)),
            (4, 3),
            "LLLjfL,efQ,e,eFPfQ2NfQfQfQfQ",
        ),
        (
            painted(8, 6, lambda x, y: (5 * (8 * y + x), 255 - 5 * (8 * y + x), 3 * (8 * y + x))),
            (5, 2),
            "D|G9x}k-X5tPX5HJXhj@XOj@",
        ),
        (painted(5, 7, lambda x, y: (50 * x, 30 * y, 200)), (1, 1), "00Ee,D"),
    ],
    ids=["black", "white", "checkered", "gradient", "one component"],
)
def test_it_is_the_text_that_the_reference_implementations_write(
    image: Image.Image, components: tuple[int, int], text: str
) -> None:
    """Those of npm (blurhash 2.0.5) and Go (buckket/go-blurhash)."""
    assert blurhash(image, *components) == text


@pytest.mark.parametrize(
    ("size", "components"),
    [((64, 48), (4, 3)), ((48, 64), (3, 4)), ((50, 50), (4, 3)), ((300, 1), (4, 3)), ((1, 300), (3, 4))],
)
def test_the_longer_side_has_four_components_and_the_other_three(
    size: tuple[int, int], components: tuple[int, int]
) -> None:
    text = fingerprint_of(scenery(*size)).blurhash
    assert components_of(text) == components
    assert len(text) == 28


def test_two_halves_can_be_told_apart_in_the_blurred_picture() -> None:
    text = fingerprint_of(halves(RED, BLUE, (96, 64))).blurhash
    for y in (0.1, 0.5, 0.9):
        assert distance(decoded(text, 0.2, y), RED) < 50
        assert distance(decoded(text, 0.8, y), BLUE) < 50


def test_top_and_bottom_can_be_told_apart_in_the_blurred_picture() -> None:
    text = fingerprint_of(halves(RED, BLUE, (96, 64)).transpose(Image.Transpose.ROTATE_270)).blurhash
    for x in (0.1, 0.5, 0.9):
        assert distance(decoded(text, x, 0.2), RED) < 50
        assert distance(decoded(text, x, 0.8), BLUE) < 50


def test_the_average_is_one_of_light_not_of_numbers() -> None:
    text = blurhash(halves(BLACK, WHITE, (32, 32)), 4, 3)
    assert average_of(text) == (188, 188, 188)


def test_the_blurred_picture_is_near_the_blurred_original() -> None:
    image = scenery(320, 240)
    text = fingerprint_of(image).blurhash
    blurred = image.resize((4, 3), Image.Resampling.BOX)
    apart = [
        distance(decoded(text, (x + 0.5) / 4, (y + 0.5) / 3), rgb_at(blurred, x, y)) for x in range(4) for y in range(3)
    ]
    assert sum(apart) / len(apart) < 40


def rgb_at(image: Image.Image, x: int, y: int) -> RGB:
    red, green, blue = image.crop((x, y, x + 1, y + 1)).tobytes()
    return red, green, blue


@given(st.tuples(*[st.integers(0, 255)] * 3))
@settings(max_examples=30)
@example(BLACK)
@example(WHITE)
def test_a_picture_of_one_color_has_it_everywhere(color: RGB) -> None:
    found = fingerprint(Image.new("RGB", THUMBNAIL, color), (4, 3))
    assert average_of(found.blurhash) == color
    assert found.color == "#{:02x}{:02x}{:02x}".format(*color)
    assert found.dhash == 16 * "0"


# --- Difference hash


def shaded(brightness: Callable[[float, float], float]) -> Image.Image:
    width, height = THUMBNAIL
    values = bytes(round(255 * brightness(x / width, y / height)) for y in range(height) for x in range(width))
    return Image.frombytes("L", THUMBNAIL, values).convert("RGB")


def peak(x: float) -> float:
    return 1 - abs(2 * x - 1)


@pytest.mark.parametrize(
    ("image", "bits"),
    [
        (shaded(lambda x, y: x), "ffffffffffffffff"),
        (shaded(lambda x, y: 1 - x), "0000000000000000"),
        (shaded(lambda x, y: y), "0000000000000000"),
        (shaded(lambda x, y: peak(x)), "f0f0f0f0f0f0f0f0"),
        (shaded(lambda x, y: x if y < 0.5 else 1 - x), "ffffffff00000000"),
        (shaded(lambda x, y: peak(x) if y < 0.25 else 1 - x), "f0f0000000000000"),
    ],
    ids=["to the right", "to the left", "down", "to the middle", "only above", "only at the top"],
)
def test_a_bit_is_set_where_it_gets_brighter_to_the_right(image: Image.Image, bits: str) -> None:
    """Row by row, from the top left."""
    assert dhash(image) == bits


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_in_another_size_and_quality_has_nearly_the_same_bits(seed: int) -> None:
    image = scenery(400, 300, seed)
    original = fingerprint_of(image).dhash
    assert int(original, 16) > 0
    assert len(original) == 16
    copies = [
        fingerprint_of(image.resize((137, 99)), "JPEG", quality=40),
        fingerprint_of(image.resize((900, 675)), "WEBP", quality=50),
        fingerprint_of(image.resize((300, 300)), "AVIF", quality=50),
        fingerprint_of(image.convert("L")),
    ]
    assert max(different_bits(original, copy.dhash) for copy in copies) <= 4


@pytest.mark.parametrize("seed", range(5))
def test_other_pictures_have_other_bits(seed: int) -> None:
    image = scenery(400, 300, seed)
    original = fingerprint_of(image).dhash
    for other in (ImageOps.mirror(image), ImageOps.flip(image), ImageOps.invert(image), scenery(400, 300, seed + 100)):
        assert different_bits(original, fingerprint_of(other).dhash) >= 16


# --- Dominant color


def test_the_color_of_the_larger_part_is_dominant() -> None:
    assert fingerprint_of(halves(RED, BLUE, (100, 60), share=0.7)).color == "#e61414"
    assert fingerprint_of(halves(RED, BLUE, (100, 60), share=0.3)).color == "#1428dc"


def test_similar_colors_count_together_and_are_averaged() -> None:
    image = Image.new("RGB", THUMBNAIL, (200, 30, 30))
    image.paste((210, 20, 20), (0, 0, 18, 64))
    image.paste((20, 200, 60), (18, 0, 50, 64))
    assert fingerprint(image, (4, 3)).color == "#cc1a1a"


def test_a_transparent_picture_is_white() -> None:
    image = Image.new("RGBA", (60, 40), (0, 90, 200, 0))
    found = fingerprint_of(image)
    assert found == fingerprint_of(Image.new("RGB", (60, 40), "white"))
    assert found.color == "#ffffff"


@pytest.mark.parametrize(("alpha", "color"), [(255, "#14c83c"), (128, "#14c83c"), (127, "#ffffff"), (0, "#ffffff")])
def test_pixels_that_are_more_transparent_than_not_have_no_say(alpha: int, color: str) -> None:
    image = Image.new("RGBA", THUMBNAIL, (*GREEN, alpha))
    assert fingerprint(image, (4, 3)).color == color


def test_the_rest_of_a_transparent_picture_is_dominant() -> None:
    image = Image.new("RGBA", (60, 40), (*RED, 0))
    image.paste((*GREEN, 255), (0, 0, 10, 10))
    assert fingerprint_of(image).color == "#14c83c"


def test_transparent_parts_count_as_white_in_the_other_two() -> None:
    image = halves(RED, BLUE).convert("RGBA")
    image.paste((*GREEN, 0), (36, 0, 72, 64))
    expected = fingerprint(halves(RED, WHITE), (4, 3))
    assert fingerprint(image, (4, 3)) == expected._replace(color="#e61414")


# --- Of a picture


@pytest.mark.parametrize("orientation", range(1, 9))
def test_it_is_of_the_picture_as_seen(orientation: int) -> None:
    image = scenery(90, 60)
    exif = image.getexif()
    exif[0x0112] = orientation
    seen = fingerprint_of(ImageOps.exif_transpose(image))
    found = fingerprint_of(image, exif=exif)
    assert components_of(found.blurhash) == components_of(seen.blurhash)
    assert different_bits(found.dhash, seen.dhash) <= 2
    assert distance(average_of(found.blurhash), average_of(seen.blurhash)) <= 2


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_picture_that_is_opened_for_small_variants_has_nearly_the_same(kind: str) -> None:
    file = io.BytesIO()
    scenery(1600, 1200).save(file, kind)
    full = Picture.open(file.getvalue(), LIMITS).fingerprint()
    reduced = Picture.open(file.getvalue(), LIMITS, largest=[Variant("webp", width=1)]).fingerprint()
    assert different_bits(full.dhash, reduced.dhash) <= 2
    assert distance(average_of(full.blurhash), average_of(reduced.blurhash)) <= 2
