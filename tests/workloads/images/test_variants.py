"""Variants as data: reading, defaults, names, and the choice among formats."""

import json

import pytest

from holdfast.errors import Invalid
from holdfast.workloads.images.included import ext
from holdfast.workloads.images.manifest import manifest
from holdfast.workloads.images.negotiation import best_format
from holdfast.workloads.images.settings import Settings
from holdfast.workloads.images.variants import QUALITY, Variant, read_variants, stored_variants, variants_json


def test_the_default_is_three_widths_in_three_formats() -> None:
    names = [variant.name for variant in Settings().default_variants()]
    assert names == [f"w{width}.{form}" for width in (320, 800, 1600) for form in ("jpeg", "webp", "avif")]


def test_the_default_can_be_set_as_widths_and_formats_or_as_a_list() -> None:
    assert [each.name for each in Settings(widths="64, 32", formats=" png").default_variants()] == [
        "w64.png",
        "w32.png",
    ]
    listed = Settings(variants='[{"name": "icon", "width": 16, "height": 16, "fit": "cover", "format": "png"}]')
    assert listed.default_variants() == [Variant("png", "icon", 16, 16, "cover", QUALITY["png"])]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"widths": "a"}, "WIDTHS.* is invalid: .*such as 320,800"),
        ({"widths": "320,,800"}, "WIDTHS.* is invalid: .*such as 320,800"),
        ({"widths": "320,320"}, "WIDTHS.* is invalid: .*the same name"),
        ({"widths": "0"}, "WIDTHS.* is invalid"),
        ({"widths": "-5"}, "WIDTHS.* is invalid"),
        ({"formats": "gif"}, "FORMATS.* is invalid"),
        ({"formats": ""}, "FORMATS.* is invalid"),
        ({"variants": "nonsense"}, "VARIANTS.* is invalid"),
        ({"variants": "[]"}, "VARIANTS.* is invalid"),
    ],
)
def test_a_default_that_is_invalid_is_found_when_the_settings_are_read(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=f"HOLDFAST_IMAGES_.*{says}"):
        Settings(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"storage_url": "gs://bucket"},
        {"storage_url": "s3://"},
        {"storage_url": "file://elsewhere/x"},
        {"storage_url": "s3://b/prefix"},
        {"storage_url": "memory://"},
        {"storage_url": "images"},
        {"storage_url": "./images"},
        {"storage_url": "s3://bucket/prefix?endpoint=nonsense"},
        {"storage_url": "s3://bucket/prefix?color=blue"},
        {"cdn": "https://example.cloudfront.net"},
        {"cdn_endpoint_url": "localhost:4566"},
        {"cdn_endpoint_url": "ftp://example.com"},
        {"cdn_endpoint_url": "https://"},
        {"public_url": "images.example.com"},
        {"access_key_id": "AK"},
        {"secret_access_key": "s"},
    ],
)
def test_a_setting_that_is_invalid_is_named(wrong: dict[str, str]) -> None:
    [name] = wrong
    with pytest.raises(ValueError, match=f"HOLDFAST_IMAGES_{name.upper()} "):
        Settings(**wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"storage_url": "file:///srv/images"},
        {"storage_url": "/srv/images"},
        {"storage_url": "s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-1"},
        {"cdn": "none"},
        {"cdn": "NONE"},
        {"cdn": "E2QWRUHEXAMPLE", "cdn_endpoint_url": "http://127.0.0.1:4566"},
        {"public_url": "https://example.com/service"},
        {"access_key_id": "AK", "secret_access_key": "s"},
    ],
)
def test_valid_settings_are_kept(right: dict[str, str]) -> None:
    settings = Settings(**right)
    assert {name: getattr(settings, name) for name in right} == right


@pytest.mark.parametrize(
    ("cdn", "has"), [("", False), ("none", False), ("None", False), ("NONE", False), ("E2QWRUHEXAMPLE", True)]
)
def test_the_cdn_is_none_or_a_distribution(cdn: str, has: bool) -> None:
    assert Settings(cdn=cdn).has_cdn is has


def test_an_invalid_default_is_an_invalid_setting() -> None:
    assert ext.section is not None
    with pytest.raises(Invalid, match="settings of extension 'images': HOLDFAST_IMAGES_WIDTHS or") as caught:
        ext.section.read({"HOLDFAST_IMAGES_WIDTHS": "-5"}, {})
    assert caught.value.code == "invalid_setting"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("hero", "png"),
        ("hero.large", "png"),
        ("png", "png"),
        ("signed", "png"),
        ("w20.png", "png"),
        ("a.jpg", "jpeg"),
        ("a.jpeg", "jpeg"),
        ("x" * 63 + ".webp", "webp"),
    ],
)
def test_names_may_be_chosen(name: str, form: str) -> None:
    [variant] = read_variants(json.dumps([{"width": 1, "format": form, "name": name}]))
    assert variant.name == name


def test_a_field_that_is_null_is_as_if_it_were_not_there() -> None:
    fields = {"name": None, "width": 16, "height": None, "fit": None, "format": "png", "quality": None}
    assert read_variants(json.dumps([fields])) == read_variants('[{"width": 16, "format": "png"}]')


def test_variants_are_stored_as_they_were_checked() -> None:
    variants = read_variants('[{"width": 16, "format": "png"}, {"width": 9, "format": "webp", "name": "hero"}]')
    assert stored_variants(variants_json(variants)) == variants


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
        ('[{"width": 1, "format": "png", "name": "../x"}]', "the name '../x' is not lower-case letters, digits"),
        ('[{"width": 1, "format": "png", "name": "x\\n"}]', "the name"),
        ('[{"width": 1, "format": "png", "name": "Hero"}]', "the name 'Hero' is not lower-case letters, digits"),
        ('[{"width": 1, "format": "png", "name": "a.jpg"}]', "the suffix of another format than png"),
        ('[{"width": null, "format": "png"}]', "a width or a height"),
        ('[{"width": 1, "format": null}]', "format"),
        ("[null]", "object"),
        ("null", "array"),
        ('[{"width": 1, "format": "png", "name": "cancel"}]', "because a route is"),
        ('[{"width": 1, "format": "png", "name": "reprocess"}]', "because a route is"),
        ('[{"width": 1, "format": "png", "name": "x.webp"}]', "the suffix of another format than png"),
        ('[{"width": 8000, "height": 5001, "fit": "contain", "format": "png"}]', "more than 40000000 pixels"),
        ('[{"width": 8000, "height": 5001, "fit": "cover", "format": "png"}]', "more than 40000000 pixels"),
        ('[{"width": 1, "format": "png", "color": 1}]', "color"),
        ('[{"width": 1, "format": "png", "quality": 101}]', "<= 100"),
        (json.dumps([{"width": n, "format": "png"} for n in range(1, 52)]), "there are 51"),
        ("[{", "malformed|truncated"),
        ("[" * 5000, "nested too deeply"),
        ('[{"width": 1, "format": ' + '{"a":' * 5000, "nested too deeply"),
        (" ", "they are empty"),
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
