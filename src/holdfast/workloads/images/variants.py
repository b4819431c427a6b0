"""Variants: the sizes and formats that an image is stored in, as data."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from holdfast.errors import Invalid

Format = Literal["jpeg", "webp", "avif", "png"]
Fit = Literal["inside", "cover", "contain"]
QUALITY = {"jpeg": 82, "webp": 80, "avif": 60, "png": 100}
MEDIA_TYPE = {"jpeg": "image/jpeg", "webp": "image/webp", "avif": "image/avif", "png": "image/png"}
SUFFIXES = {**{name: name for name in MEDIA_TYPE}, "jpg": "jpeg"}  # of names, and the format that each means
PREFERRED = ("avif", "webp", "jpeg", "png")  # the best first
VARIANTS_MAX = 50
SIDE_MAX = 16_383  # of WebP
PIXELS_MAX = 40_000_000  # of a variant: that of AVIF needs 25 bytes for each, and with the image has 2 GiB
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}(\.[a-z0-9]{1,8})?")
TAKEN = ("cancel", "reprocess")  # routes of an image

_Side = Annotated[int, msgspec.Meta(ge=1, le=SIDE_MAX)]


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`inside`: at most this large; `cover`: exactly this large, cropped; `contain`: exactly this large, padded. An
    image is never enlarged. `quality` 0: that of the format."""

    format: Format
    name: str = ""
    width: _Side | None = None
    height: _Side | None = None
    fit: Fit = "inside"
    quality: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


_NAME_FORM = "lower-case letters, digits, - and _, at most 63, with at most one suffix, such as hero.webp"
_EXAMPLE = (
    '{"format": "jpeg|webp|avif|png", "width": 1..16383, "height": 1..16383, "fit": "inside|cover|contain", '
    '"quality": 1..100, "name": "a-z 0-9 - _"}, with a width or a height'
)


def read_variants(text: str | bytes) -> list[Variant]:
    """The variants of a request; a field that is null is as if it were not there. Raises `invalid_variants`."""
    try:
        return checked(msgspec.convert(_without_nulls(msgspec.json.decode(text)), list[Variant]))
    except msgspec.ValidationError as error:
        raise _invalid(f"{error}; each is like {_EXAMPLE}") from None
    except RecursionError:
        raise _invalid(f"they are nested too deeply; each is like {_EXAMPLE}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid(f"they are a JSON list: {error}" if text.strip() else "they are empty, and not a list") from None


def _without_nulls(items: Any) -> Any:
    if not isinstance(items, list):
        return items
    return [_given(item) if isinstance(item, dict) else item for item in items]


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def stored_variants(text: str) -> list[Variant]:
    """As they were checked when they were stored."""
    return msgspec.json.decode(text, type=list[Variant])


def variants_json(variants: list[Variant]) -> str:
    return msgspec.json.encode(variants).decode()


def checked(variants: list[Variant]) -> list[Variant]:
    """With a name and a quality each; the names differ."""
    if not 0 < len(variants) <= VARIANTS_MAX:
        raise _invalid(f"there are {len(variants)}; 1 to {VARIANTS_MAX} are allowed")
    found = {named.name: named for named in map(_complete, variants)}
    if len(found) < len(variants):
        raise _invalid("two variants have the same name; give each its own")
    return list(found.values())


def _complete(variant: Variant) -> Variant:
    if variant.width is None and variant.height is None:
        raise _invalid("each needs a width or a height")
    if variant.fit != "inside" and (variant.width is None or variant.height is None):
        raise _invalid(f"fit {variant.fit!r} needs a width and a height")
    if variant.fit != "inside" and (variant.width or 0) * (variant.height or 0) > PIXELS_MAX:
        raise _invalid(f"{variant.width} x {variant.height} are more than {PIXELS_MAX} pixels")
    name = variant.name or _name(variant)
    _check_name(name, variant.format)
    return msgspec.structs.replace(variant, name=name, quality=variant.quality or QUALITY[variant.format])


def _check_name(name: str, form: Format) -> None:
    if not NAME.fullmatch(name):
        raise _invalid(f"the name {name[:80]!r} is not {_NAME_FORM}")
    if name in TAKEN:
        raise _invalid(f"no variant can be called {name!r}, because a route is")
    suffix = SUFFIXES.get(name.partition(".")[2], form)
    if suffix != form:
        raise _invalid(f"{name!r} has the suffix of another format than {form}")


def _name(variant: Variant) -> str:
    sides = "".join(f"{letter}{side}" for letter, side in (("w", variant.width), ("h", variant.height)) if side)
    return f"{sides}{'' if variant.fit == 'inside' else f'-{variant.fit}'}.{variant.format}"


def _invalid(why: str) -> Invalid:
    return Invalid(f"invalid variants: {why}", code="invalid_variants")
