"""Variants as data: reading, defaults, names, and the choice among formats."""

import json

import pytest

from holdfast.errors import Invalid
from holdfast.workloads.images.included import ext
from holdfast.workloads.images.manifest import manifest
from holdfast.workloads.images.negotiation import best_format
from holdfast.workloads.images.settings import Settings
from holdfast.workloads.images.variants import QUALITY, Variant, default_variants, read_variants


def test_the_default_is_three_widths_in_three_formats() -> None:
    names = [variant.name for variant in default_variants(Settings())]
    assert names == [f"w{width}.{form}" for width in (320, 800, 1600) for form in ("jpeg", "webp", "avif")]


def test_the_default_can_be_set_as_widths_and_formats_or_as_a_list() -> None:
    assert [each.name for each in default_variants(Settings(widths="64, 32", formats=" png"))] == ["w64.png", "w32.png"]
    listed = Settings(variants='[{"name": "icon", "width": 16, "height": 16, "fit": "cover", "format": "png"}]')
    assert default_variants(listed) == [Variant("png", "icon", 16, 16, "cover", QUALITY["png"])]


@pytest.mark.parametrize("wrong", [{"widths": "a"}, {"widths": "0"}, {"formats": "gif"}, {"formats": ""}])
def test_a_default_that_is_wrong_names_its_setting(wrong: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="HOLDFAST_IMAGES_") as caught:
        default_variants(Settings(**wrong))
    assert caught.value.code == "invalid_setting"


def test_names_and_qualities_are_filled_in() -> None:
    text = (
        '[{"height": 9, "format": "avif"}, {"width": 7, "height": 9, "fit": "contain", "format": "webp", "quality": 5}]'
    )
    first, second = read_variants(text)
    assert (first.name, first.quality) == ("h9.avif", QUALITY["avif"])
    assert (second.name, second.quality) == ("w7h9-contain.webp", 5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "there are 0"),
        ('[{"width": 1, "format": "png"}, {"width": 1, "format": "png"}]', "the same name"),
        ('[{"width": 1, "height": 1, "format": "png", "fit": "fill"}]', "fit"),
        ('[{"width": 1, "format": "png", "fit": "cover"}]', "a width and a height"),
        ('[{"format": "png"}]', "a width or a height"),
        ('[{"width": 16384, "format": "png"}]', "<= 16383"),
        ('[{"width": 1, "format": "png", "name": "../x"}]', "name"),
        ('[{"width": 1, "format": "png", "colour": 1}]', "colour"),
        ('[{"width": 1, "format": "png", "quality": 101}]', "<= 100"),
        (json.dumps([{"width": n, "format": "png"} for n in range(1, 52)]), "there are 51"),
        ("[{", "malformed|truncated"),
        (b"\xff", "utf-8|malformed|UTF-8"),
    ],
)
def test_wrong_variants_are_refused_with_the_reason(text: str | bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        read_variants(text)
    assert caught.value.code == "invalid_variants"


ALL = {name: name for name in ("jpeg", "webp", "avif", "png")}


@pytest.mark.parametrize(
    ("accept", "offered", "chosen"),
    [
        ("image/avif,image/webp,image/apng,image/*,*/*;q=0.8", ALL, "avif"),
        ("image/webp,*/*", ALL, "webp"),
        ("image/webp;q=0.9,image/avif;q=0.5", ALL, "webp"),
        ("image/avif;q=0,*/*", {"avif": "avif"}, None),
        ("*/*", ALL, "jpeg"),
        ("*/*", {"avif": "avif", "webp": "webp"}, "avif"),
        ("", ALL, "jpeg"),
        ("image/png", ALL, "png"),
        ("text/html", ALL, None),
        ("IMAGE/WEBP ; q=1", ALL, "webp"),
        ("image/webp;q=x", ALL, None),
        (",;,", ALL, None),
    ],
)
def test_the_client_gets_the_best_format_that_it_accepts(
    accept: str, offered: dict[str, str], chosen: str | None
) -> None:
    assert best_format(accept, offered) == chosen


def test_the_manifest_is_true() -> None:
    assert {*manifest.job_types} == {*ext.handlers}
    assert {*manifest.scopes} == {*ext.scopes}
    assert manifest.settings is Settings
