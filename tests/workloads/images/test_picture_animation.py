"""Animations: frames, durations and loops, as they are in the source."""

import io
import struct
import zlib
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from PIL import GifImagePlugin, Image, ImageDraw

from holdfast.workloads.images.faults import CORRUPT, TOO_MANY_PIXELS
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.picture import Picture
from holdfast.workloads.images.variants import Format
from tests.workloads.images import builders as b
from tests.workloads.images.hostile import photo
from tests.workloads.images.test_picture import (
    BLUE,
    GREEN,
    LIMITS,
    RED,
    YELLOW,
    apart,
    fault_of,
    file_of,
    is_near,
    pixel,
    quarters,
    render,
    seen,
    shown,
    turned,
    variant_of,
)
from tests.workloads.images.test_picture_colors import swapped

ANIMATED: tuple[Format, ...] = ("webp", "avif")
KINDS = ("GIF", "PNG", "WEBP", "AVIF")
COLORS = (RED, GREEN, BLUE, YELLOW)
DISPOSALS = {"GIF": (0, 1, 2, 3), "PNG": (0, 1, 2), "WEBP": (None,), "AVIF": (None,)}
OF_KINDS = [(kind, disposal) for kind in KINDS for disposal in DISPOSALS[kind]]


class Frame(NamedTuple):
    image: Image.Image
    duration: float | None


def frames_of(data: bytes) -> list[Frame]:
    """As Pillow puts them together."""
    found = []
    with Image.open(io.BytesIO(data)) as image:
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            image.load()
            found.append(Frame(image.convert("RGBA"), image.info.get("duration")))
    return found


def durations_of(data: bytes) -> list[float | None]:
    return [frame.duration for frame in frames_of(data)]


def animation(kind: str, images: list[Image.Image], **options: Any) -> bytes:
    finest = {"quality": 100, "subsampling": "4:4:4"} if kind == "AVIF" else {}
    options = {"duration": 50, **finest, **options}
    return file_of(images[0], kind, save_all=True, append_images=images[1:], **options)


def wandering(mode: str = "RGB") -> list[Image.Image]:
    """A disc in another place and color in each frame, on white or on nothing."""
    found = []
    for n, color in enumerate(COLORS):
        image = Image.new("RGBA", (64, 48), (250, 250, 250, 255) if mode == "RGB" else (0, 0, 0, 0))
        ImageDraw.Draw(image).ellipse((12 * n, 10 * n, 12 * n + 20, 10 * n + 16), (*color, 255))
        found.append(image.convert(mode))
    return found


def plain(*colors: tuple[int, int, int], size: tuple[int, int] = (32, 16)) -> list[Image.Image]:
    return [Image.new("RGB", size, color) for color in colors]


def apng(
    delays: list[tuple[int, int]], colors: list[tuple[int, int, int]], *, plays: int = 0, hidden: bool = False
) -> bytes:
    """A delay is a fraction of a second. With `hidden`, a black picture is shown where it does not play."""
    row, parts, number = b"\0", [b.chunk(b"acTL", struct.pack(">II", len(delays), plays))], 0
    if hidden:
        parts.append(b.chunk(b"IDAT", zlib.compress((row + bytes(3 * 32)) * 16)))
    for delay, color in zip(delays, colors, strict=True):
        data = zlib.compress((row + bytes(color) * 32) * 16)
        parts.append(b.chunk(b"fcTL", struct.pack(">5I2H2B", number, 32, 16, 0, 0, *delay, 0, 0)))
        if number or hidden:
            parts.append(b.chunk(b"fdAT", struct.pack(">I", number + 1) + data))
            number += 2
        else:
            parts.append(b.chunk(b"IDAT", data))
            number += 1
    return b.png(32, 16, *parts, color=2)


def gif_frame(width: int, height: int, shade: int = 1) -> bytes:
    return b"".join(GifImagePlugin.getdata(Image.new("L", (width, height), shade)))


def control(disposal: int = 0, hundredths: int = 5, transparent: int | None = None) -> bytes:
    flags = disposal << 2 | (transparent is not None)
    return b"!\xf9\x04" + struct.pack("<BHBB", flags, hundredths, transparent or 0, 0)


# --- Frames


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize(("kind", "disposal"), OF_KINDS)
def test_each_frame_is_what_a_player_would_show(kind: str, disposal: int | None, mode: str, form: Format) -> None:
    options = {} if disposal is None else {"disposal": disposal}
    source = animation(kind, wandering(mode), **options)
    rendered = render(source, form)
    expected, found = frames_of(source), frames_of(rendered.data)
    assert rendered.frames == len(found) == len(expected) == 4
    for frame, like in zip(found, expected, strict=True):
        assert apart(frame.image, like.image, block=8) <= 40
        assert apart(frame.image, like.image, block=16) <= 16
    assert all(apart(one.image, other.image, block=8) > 90 for one, other in pairwise(found))


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_transparent_background_stays_so(kind: str, form: Format) -> None:
    source = animation(kind, wandering("RGBA"), **({"disposal": 2} if kind == "GIF" else {}))
    for n, frame in enumerate(frames_of(render(source, form).data)):
        assert pixel(frame.image, 62, 2)[3] == 0
        assert is_near(pixel(frame.image, 12 * n + 10, 10 * n + 8), (*COLORS[n], 255), 12)


@pytest.mark.parametrize("form", ANIMATED)
def test_what_a_frame_leaves_behind_is_as_its_disposal_says(form: Format) -> None:
    """Left, middle and right in turn: one stays, one is cleared, one gives way to what was there before."""
    screen = b.gif(
        48,
        16,
        *[control(disposal=1, transparent=0), gif_part(0)],
        *[control(disposal=2, transparent=0), gif_part(16)],
        *[control(disposal=3, transparent=0), gif_part(32)],
        *[control(disposal=1, transparent=0), gif_part(0)],
    )
    shows = [[pixel(frame.image, x, 8)[3] > 127 for x in (8, 24, 40)] for frame in frames_of(render(screen, form).data)]
    assert shows == [[True, False, False], [True, True, False], [True, False, True], [True, False, False]]


@pytest.mark.parametrize("form", ANIMATED)
def test_what_is_cleared_after_an_opaque_frame_is_transparent(form: Format) -> None:
    """The second frame is cleared; the third fills the right half only."""
    screen = b.gif(
        48,
        16,
        *[control(disposal=1), gif_frame(48, 16, 0)],
        *[control(disposal=2, transparent=0), gif_part(0)],
        *[control(disposal=1, transparent=0), gif_part(32)],
    )
    shows = [[pixel(frame.image, x, 8)[3] > 127 for x in (8, 24, 40)] for frame in frames_of(render(screen, form).data)]
    assert shows == [[True, True, True], [True, True, True], [False, True, True]]


@pytest.mark.parametrize("form", ANIMATED)
def test_an_animation_that_clears_nothing_has_no_transparency(form: Format) -> None:
    screen = b.gif(48, 16, *[control(disposal=2), gif_frame(48, 16, 0)], *[control(transparent=0), gif_part(0)])
    data = render(screen, form).data
    assert all(frame.image.getextrema()[3] == (255, 255) for frame in frames_of(data))


def gif_part(left: int) -> bytes:
    """White, 16 pixels wide, with a hole in its corner."""
    image = Image.new("L", (16, 16), 1)
    image.paste(0, (0, 0, 3, 3))
    return b"".join(GifImagePlugin.getdata(image, (left, 0)))


@pytest.mark.parametrize("form", ["jpeg", "png"])
@pytest.mark.parametrize("kind", KINDS)
def test_formats_that_do_not_move_show_the_first_frame(kind: str, form: Format) -> None:
    rendered = render(animation(kind, wandering()), form)
    assert rendered.frames == 1
    assert len(frames_of(rendered.data)) == 1
    assert apart(shown(rendered.data), wandering()[0], block=8) <= 16


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_cut_and_made_smaller_like_stills(kind: str, form: Format) -> None:
    source = animation(kind, [quarters(), turned(quarters(), 3)])
    cover = {"width": 16, "height": 16, "fit": "cover"}
    for options in ({"width": 32}, cover, {"width": 640, "height": 320, "fit": "cover"}):
        rendered = render(source, form, **options)
        found = frames_of(rendered.data)
        still = seen(source, "png", **options)
        assert found[0].image.size == still.size == (rendered.width, rendered.height)
        assert apart(found[0].image, still, block=8) <= 32
        assert apart(found[1].image, turned(still, 3), block=8) <= 32


@pytest.mark.parametrize("form", ANIMATED)
def test_frames_are_padded_like_stills(form: Format) -> None:
    source = animation("GIF", plain(RED, BLUE, size=(64, 50)))
    rendered = render(source, form, width=32, height=64, fit="contain")
    assert (rendered.width, rendered.height) == (32, 64)
    for frame, color in zip(frames_of(rendered.data), (RED, BLUE), strict=True):
        assert [pixel(frame.image, 16, y)[3] for y in (2, 14, 50, 62)] == [0, 0, 0, 0]
        assert is_near(pixel(frame.image, 16, 32), (*color, 255), 8)


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("orientation", [3, 5, 6])
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_each_frame_is_upright(kind: str, orientation: int, form: Format) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    images = [quarters(), turned(quarters(), 2)]
    source = animation(kind, images, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    rendered = render(source, form)
    for frame, image in zip(frames_of(rendered.data), images, strict=True):
        upright = turned(image, orientation)
        assert (rendered.width, rendered.height) == frame.image.size == upright.size
        assert apart(frame.image, upright, block=16) <= 16


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "AVIF"])
def test_each_frame_has_the_colors_of_the_profile(kind: str, form: Format) -> None:
    source = animation(kind, plain((220, 40, 60), (40, 60, 220)), icc_profile=swapped())
    found = [pixel(frame.image, 16, 8, "RGB") for frame in frames_of(render(source, form).data)]
    assert is_near(found[0], (40, 220, 60), 8)
    assert is_near(found[1], (60, 40, 220), 8)


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("kind", KINDS)
def test_grey_frames(kind: str, form: Format) -> None:
    ramp = Image.linear_gradient("L").resize((64, 48))
    images = [ramp, turned(ramp, 3)]
    for frame, image in zip(frames_of(render(animation(kind, images), form).data), images, strict=True):
        assert apart(frame.image, image, block=8) <= 8


@pytest.mark.parametrize("form", ANIMATED)
def test_a_frame_with_transparency_on_an_opaque_one(form: Format) -> None:
    """It is larger than the screen too, so that Pillow adds an alpha channel on the way."""
    source = b.gif(16, 16, control(), gif_frame(16, 16), control(transparent=1), gif_frame(32, 32, 0))
    found = frames_of(render(source, form).data)
    assert [frame.image.size for frame in found] == [(16, 16)] * 2
    assert [pixel(frame.image, 8, 8)[3] for frame in found] == [255, 255]


@pytest.mark.parametrize("form", ANIMATED)
def test_the_picture_for_programs_that_do_not_play_is_no_frame(form: Format) -> None:
    source = apng([(1, 10), (2, 10)], [RED, BLUE], hidden=True)
    assert Picture.open(source, LIMITS).frames == 2
    found = frames_of(render(source, form).data)
    assert [frame.duration for frame in found] == [100, 200]
    assert is_near(pixel(found[0].image, 9, 9, "RGB"), RED)
    assert is_near(pixel(found[1].image, 9, 9, "RGB"), BLUE)
    assert is_near(pixel(seen(source, "png"), 9, 9, "RGB"), (0, 0, 0))


def test_an_animation_of_one_frame_is_a_still() -> None:
    source = b.gif(16, 16, control(), gif_frame(16, 16))
    for form in ANIMATED:
        assert render(source, form).frames == 1
        assert len(frames_of(render(source, form).data)) == 1


# --- Durations


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("kind", KINDS)
def test_each_frame_is_shown_as_long_as_in_the_source(kind: str, form: Format) -> None:
    source = animation(kind, wandering(), duration=[20, 350, 40, 1000])
    assert durations_of(source) == durations_of(render(source, form).data) == [20, 350, 40, 1000]


@pytest.mark.parametrize("form", ANIMATED)
def test_what_is_rounded_off_goes_to_the_next_frame(form: Format) -> None:
    source = apng([(1, 30)] * 6, [RED, GREEN] * 3)
    assert durations_of(render(source, form).data) == [33, 34, 33, 33, 34, 33]
    long = apng([(1, 48)] * 48, [RED, GREEN] * 24)
    found = durations_of(render(long, form).data)
    assert sum(map(float, filter(None, found))) == 1000
    assert {*found} == {20, 21}


@pytest.mark.parametrize("form", ANIMATED)
def test_a_frame_without_a_duration_is_shown_for_100_ms(form: Format) -> None:
    source = apng([(0, 100), (3, 100), (0, 0)], [RED, GREEN, BLUE])
    assert durations_of(source) == [0, 30, 0]
    assert durations_of(render(source, form).data) == [100, 30, 100]
    without = b.gif(16, 16, gif_frame(16, 16), control(hundredths=7), gif_frame(16, 16, 0))
    assert durations_of(render(without, form).data) == [100, 70]


# --- Loops


def plays_of(webp: bytes) -> int:
    at = webp.index(b"ANIM") + 12
    return int.from_bytes(webp[at : at + 2], "little")


@pytest.mark.parametrize(
    ("source", "plays"),
    [
        (animation("GIF", plain(RED, BLUE)), 1),
        (animation("GIF", plain(RED, BLUE), loop=0), 0),
        (animation("GIF", plain(RED, BLUE), loop=1), 2),
        (animation("GIF", plain(RED, BLUE), loop=7), 8),
        (animation("GIF", plain(RED, BLUE), loop=65_535), 65_535),
        (animation("WEBP", plain(RED, BLUE), loop=0), 0),
        (animation("WEBP", plain(RED, BLUE), loop=3), 3),
        (animation("PNG", plain(RED, BLUE), loop=0), 0),
        (animation("PNG", plain(RED, BLUE), loop=1), 1),
        (apng([(1, 10)] * 2, [RED, BLUE], plays=70_000), 65_535),
        (animation("AVIF", plain(RED, BLUE)), 0),
    ],
    ids=[
        *["GIF once", "GIF forever", "GIF and 1 more", "GIF and 7 more", "GIF and 65535 more"],
        *["WebP forever", "WebP 3 times", "APNG forever", "APNG once", "APNG 70000 times", "AVIF"],
    ],
)
def test_it_plays_as_often_as_the_source(source: bytes, plays: int) -> None:
    """GIF tells how often it is repeated, the others how often it plays; 0 is forever."""
    assert plays_of(render(source, "webp").data) == plays


# --- Limits and damage


@pytest.mark.parametrize("form", ANIMATED)
def test_a_frame_beyond_the_limits_is_found_when_it_is_made(form: Format) -> None:
    source = b.gif(10, 10, gif_frame(10, 10), gif_frame(100, 100))
    limits = ImageLimits(max_pixels=9_999, max_frames=10, max_animation_pixels=1_000_000)
    picture = Picture.open(source, limits)
    assert picture.frames == 2
    assert fault_of(lambda: picture.render(variant_of(form))) == TOO_MANY_PIXELS
    enough = limits._replace(max_pixels=10_000)
    assert Picture.open(source, enough).render(variant_of(form))[1:] == (10, 10, 2)


@pytest.mark.parametrize("form", ANIMATED)
def test_frames_beyond_the_limit_together_are_found_when_they_are_made(form: Format) -> None:
    source = b.gif(10, 10, gif_frame(10, 10), gif_frame(60, 60), gif_frame(60, 60, 0))
    limits = ImageLimits(max_pixels=5000, max_frames=10, max_animation_pixels=7_299)
    picture = Picture.open(source, limits)
    assert fault_of(lambda: picture.render(variant_of(form))) == TOO_MANY_PIXELS
    enough = limits._replace(max_animation_pixels=7_300)
    assert Picture.open(source, enough).render(variant_of(form)).frames == 3


def noisy(kind: str) -> bytes:
    noise = Image.open(io.BytesIO(photo("BMP")))
    options = {"lossless": True} if kind == "WEBP" else {}
    return animation(kind, [noise, turned(noise, 3), turned(noise, 2), turned(noise, 4)], **options)


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("part", [0.6, 0.97])
@pytest.mark.parametrize("kind", KINDS)
def test_an_animation_that_ends_early_is_corrupt(kind: str, part: float, form: Format) -> None:
    data = noisy(kind)
    assert len(frames_of(render(data, form).data)) == 4
    assert fault_of(lambda: render(data[: int(len(data) * part)], form)) == CORRUPT


@pytest.mark.parametrize("form", ANIMATED)
@pytest.mark.parametrize("kind", KINDS)
def test_an_animation_whose_last_frame_is_damaged_is_corrupt(kind: str, form: Format) -> None:
    data = bytearray(noisy(kind))
    if kind == "WEBP":
        at = data.rindex(b"ANMF") + 45
        data[at : at + 400] = bytes(400)
    elif kind == "AVIF":
        data[-400:] = bytes(400)
    else:
        at = len(data) - 800
        data[at : at + 700] = bytes(700)
    picture = Picture.open(bytes(data), LIMITS)
    assert fault_of(lambda: picture.render(variant_of(form))) == CORRUPT
    assert picture.render(variant_of("png")).frames == 1


@pytest.mark.parametrize("form", ANIMATED)
def test_an_animation_with_fewer_frames_than_announced_is_corrupt(form: Format) -> None:
    """Pillow reports it as the end of the file, which to its encoders is the end of the animation."""
    source = b.png(8, 8, b.announce(5), b.png_frames(3, 8, 8))
    picture = Picture.open(source, LIMITS)
    assert picture.frames == 5
    assert fault_of(lambda: picture.render(variant_of(form))) == CORRUPT


@pytest.mark.parametrize("form", ANIMATED)
def test_frames_that_are_not_announced_are_not_shown(form: Format) -> None:
    source = apng([(1, 10)] * 3, [RED, GREEN, BLUE]).replace(
        b.chunk(b"acTL", struct.pack(">II", 3, 0)), b.chunk(b"acTL", struct.pack(">II", 2, 0))
    )
    assert render(source, form).frames == 2
    assert len(frames_of(render(source, form).data)) == 2
