"""Where the pixels of a picture go in a variant."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workloads.images.geometry import SIDE_MAX, Placement, place
from holdfast.workloads.images.variants import PIXELS_MAX, Fit, Format, Variant
from holdfast.workloads.images.variants import SIDE_MAX as WIDEST

FORMATS: tuple[Format, ...] = ("jpeg", "webp", "avif", "png")

small = st.integers(1, 60)
side = small | st.integers(1, 65_535)
wanted = small | st.integers(1, WIDEST)
formats = st.sampled_from(FORMATS)


def inside(width: int | None, height: int | None, form: Format = "png", fit: Fit = "inside") -> Variant:
    return Variant(form, width=width, height=height, fit=fit)


def cover(width: int, height: int) -> Variant:
    return inside(width, height, fit="cover")


def contain(width: int, height: int) -> Variant:
    return inside(width, height, fit="contain")


def whole(width: int, height: int) -> tuple[float, float, float, float]:
    return (0, 0, width, height)


def is_near(found: int, exact: Fraction) -> bool:
    """Rounded; a side has at least one pixel."""
    return abs(found - exact) <= 0.5 + 1e-6 or found == 1 > exact


@pytest.mark.parametrize(
    ("picture", "variant", "size"),
    [
        ((4000, 3000), inside(800, None), (800, 600)),
        ((4000, 3000), inside(None, 600), (800, 600)),
        ((4000, 3000), inside(800, 100), (133, 100)),
        ((4000, 3000), inside(100, 800), (100, 75)),
        ((3000, 4000), inside(300, 300), (225, 300)),
        ((640, 480), inside(800, None), (640, 480)),
        ((640, 480), inside(None, 481), (640, 480)),
        ((640, 480), inside(640, 480), (640, 480)),
        ((640, 480), inside(1, 1), (1, 1)),
        ((1001, 500), inside(500, None), (500, 250)),
        ((1, 1), inside(16_383, 16_383), (1, 1)),
    ],
)
def test_inside_is_the_whole_picture_at_most_that_large(
    picture: tuple[int, int], variant: Variant, size: tuple[int, int]
) -> None:
    assert place(*picture, variant) == Placement(whole(*picture), size, size)


@given(side, side, wanted | st.none(), wanted | st.none(), formats)
def test_inside_keeps_the_ratio_and_never_enlarges(
    width: int, height: int, wide: int | None, high: int | None, form: Format
) -> None:
    placed = place(width, height, inside(wide, high, form))
    widest, highest = (min(asked or SIDE_MAX[form], SIDE_MAX[form]) for asked in (wide, high))
    most = Fraction(math.sqrt(PIXELS_MAX / (width * height)))
    scale = min(Fraction(1), Fraction(widest, width), Fraction(highest, height), most)
    assert placed.box == whole(width, height)
    assert placed.canvas == placed.size
    assert is_near(placed.size[0], width * scale)
    assert is_near(placed.size[1], height * scale)
    assert placed.size[0] <= min(widest, width)
    assert placed.size[1] <= min(highest, height)
    assert placed.scale <= 1
    shorter, longer = placed.size if width < height else placed.size[::-1]
    assert abs(shorter - Fraction(longer * min(width, height), max(width, height))) <= 1


@given(side, side, wanted, formats)
def test_a_width_alone_is_the_width_unless_the_picture_is_narrower(
    width: int, height: int, nominal: int, form: Format
) -> None:
    placed = place(width, height, inside(nominal, None, form))
    scale = min(1, nominal / width)
    if height * scale <= SIDE_MAX[form] and width * height * scale * scale <= PIXELS_MAX:
        assert placed.size[0] == min(nominal, width)
    else:
        assert placed.size[0] <= min(nominal, width)
        assert placed.size[1] == SIDE_MAX[form] or placed.pixels == pytest.approx(PIXELS_MAX, rel=0.001)


@pytest.mark.parametrize("nominal", [320, 800, 1600])
@pytest.mark.parametrize("form", FORMATS)
def test_the_default_widths_are_exact(nominal: int, form: Format) -> None:
    for width in range(1, 4001):
        assert place(width, 3 * width // 4 or 1, inside(nominal, None, form)).size[0] == min(nominal, width)


@pytest.mark.parametrize(
    ("picture", "variant", "box"),
    [
        ((400, 300), cover(100, 100), (50, 0, 350, 300)),
        ((300, 400), cover(100, 100), (0, 50, 300, 350)),
        ((400, 300), cover(200, 100), (0, 50, 400, 250)),
        ((401, 300), cover(100, 100), (50.5, 0, 350.5, 300)),
        ((400, 300), cover(40, 30), (0, 0, 400, 300)),
        ((400, 300), cover(400, 30), (0, 135, 400, 165)),
        ((400, 300), cover(400, 300), (0, 0, 400, 300)),
    ],
)
def test_cover_cuts_the_middle_out_to_the_ratio(
    picture: tuple[int, int], variant: Variant, box: tuple[float, ...]
) -> None:
    size = variant.width, variant.height
    assert place(*picture, variant) == (box, size, size)


@pytest.mark.parametrize(
    ("picture", "variant", "box"),
    [
        ((40, 30), cover(100, 100), (5, 0, 35, 30)),
        ((40, 30), cover(100, 20), (0, 11, 40, 19)),
        ((30, 40), cover(100, 100), (0, 5, 30, 35)),
        ((41, 30), cover(30, 100), (16, 0, 25, 30)),
        ((3, 3), cover(16_383, 1), (0, 1, 3, 2)),
        ((401, 301), cover(400, 301), (0, 0, 400, 301)),
        ((1, 1), cover(16_383, 16_383), (0, 0, 1, 1)),
    ],
)
def test_a_picture_that_is_too_small_for_cover_is_only_cut(
    picture: tuple[int, int], variant: Variant, box: tuple[int, int, int, int]
) -> None:
    left, top, right, bottom = box
    size = right - left, bottom - top
    assert place(*picture, variant) == (box, size, size)


@given(side, side, wanted, wanted)
def test_cover_is_exactly_as_asked_where_the_picture_is_large_enough(
    width: int, height: int, wide: int, high: int
) -> None:
    placed = place(width, height, cover(wide, high))
    left, top, right, bottom = placed.box
    assert placed.canvas == placed.size
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert -1e-6 <= width - right - left <= 1
    assert -1e-6 <= height - bottom - top <= 1
    if width >= wide and height >= high:
        assert placed.size == (wide, high)
        assert (right - left) * high == pytest.approx((bottom - top) * wide)
    else:
        scale = min(Fraction(width, wide), Fraction(height, high))
        assert placed.size[0] == right - left
        assert placed.size[1] == bottom - top
        assert is_near(placed.size[0], wide * scale)
        assert is_near(placed.size[1], high * scale)


@given(side, side, wanted, wanted)
def test_cover_cuts_in_one_direction_only(width: int, height: int, wide: int, high: int) -> None:
    left, top, right, bottom = place(width, height, cover(wide, high)).box
    if width * high > height * wide:
        assert (top, bottom) == pytest.approx((0, height), abs=1e-6)
    else:
        assert (left, right) == pytest.approx((0, width), abs=1e-6)


@given(side, side, wanted, wanted, formats)
def test_contain_is_inside_on_a_canvas_of_exactly_that_size(
    width: int, height: int, wide: int, high: int, form: Format
) -> None:
    placed = place(width, height, inside(wide, high, form, "contain"))
    assert placed == place(width, height, inside(wide, high, form))._replace(canvas=(wide, high))


def test_contain_does_not_enlarge_what_is_on_its_canvas() -> None:
    assert place(40, 30, contain(100, 50)) == (whole(40, 30), (40, 30), (100, 50))
    assert place(400, 300, contain(100, 50)) == (whole(400, 300), (67, 50), (100, 50))


def test_cover_without_a_height_is_inside() -> None:
    assert place(400, 300, inside(100, None, fit="cover")) == place(400, 300, inside(100, None))


@pytest.mark.parametrize("fit", ["inside", "cover", "contain"])
@pytest.mark.parametrize("picture", [(1, 65_535), (65_535, 1)])
def test_a_line_of_pixels_stays_one(picture: tuple[int, int], fit: Fit) -> None:
    placed = place(*picture, inside(320, 320, fit=fit))
    along = picture.index(65_535)
    assert placed.size[along] == (1 if fit == "cover" else 320)
    assert placed.size[1 - along] == 1
    assert placed.canvas == ((320, 320) if fit == "contain" else placed.size)


@pytest.mark.parametrize(("form", "longest"), [("webp", 16_383), ("jpeg", 65_500), ("avif", 32_768), ("png", 65_535)])
def test_no_side_is_longer_than_its_format_holds(form: Format, longest: int) -> None:
    assert place(1, 65_535, inside(320, None, form)).size == (1, longest)
    assert place(65_535, 1, inside(None, 320, form)).size == (longest, 1)
    assert place(200, 65_535, inside(320, None, form)).size == (round(200 * longest / 65_535), longest)


@pytest.mark.parametrize("form", FORMATS)
def test_no_variant_has_more_pixels_than_can_be_made(form: Format) -> None:
    """But for those that rounding adds."""
    placed = place(20_000, 16_000, inside(WIDEST, None, form))
    assert placed.size[0] == pytest.approx(7071, abs=1)
    assert placed.size[1] == pytest.approx(5657, abs=1)
    assert placed.pixels == pytest.approx(PIXELS_MAX, rel=0.001)
    assert place(8000, 5000, inside(WIDEST, None, form)).size == (8000, 5000)


def test_the_scale_is_that_of_the_side_that_shrinks_less() -> None:
    assert place(4000, 3000, inside(1000, None)).scale == 0.25
    assert place(1, 65_535, inside(320, 320)).scale == 1
    assert place(400, 300, cover(100, 150)).scale == 0.5


@given(side, side, wanted, wanted, st.sampled_from(["inside", "cover", "contain"]))
def test_transposed_is_the_placement_in_the_transposed_picture(
    width: int, height: int, wide: int, high: int, fit: Fit
) -> None:
    placed = place(width, height, inside(wide, high, fit=fit))
    assert placed.transposed() == place(height, width, inside(high, wide, fit=fit))
    assert placed.transposed().transposed() == placed
    assert placed.pixels == placed.transposed().pixels == placed.size[0] * placed.size[1]
