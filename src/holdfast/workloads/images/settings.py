"""The settings of the image service: `HOLDFAST_IMAGES_*`, or `[images]` in holdfast.toml."""

import re
from typing import Annotated, Any

import msgspec

from holdfast.errors import Invalid
from holdfast.manifest import Secret
from holdfast.storage import check_shared_storage_url
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.variants import Variant, checked, read_variants

_URL = r"https?://[^\s/?#]+(/[^\s?#]*)?"
# Settings that are text of a certain form: the form, and how messages say it.
_FORMS = {
    "public_url": (f"|{_URL}", "empty, or like https://images.example.com"),
    "cdn": (r"|(?i:none)|[A-Za-z0-9]{1,64}", "`none`, or the id of a distribution, such as E2QWRUHEXAMPLE"),
    "cdn_endpoint_url": (f"|{_URL}", "empty, or like https://HOST:PORT"),
}


def _about(text: str, **bounds: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, **bounds)


class Settings(msgspec.Struct):
    storage_url: Annotated[
        str,
        _about("Where images are kept: `file:///PATH` or `s3://BUCKET/PREFIX`; empty: a folder in the data directory."),
    ] = ""
    max_bytes: Annotated[int, _about("Largest upload, in bytes.", ge=1, le=2**34)] = 52_428_800
    max_pixels: Annotated[int, _about("Most pixels of an image: width x height.", ge=1, le=2**31)] = 100_000_000
    max_frames: Annotated[int, _about("Most frames of an animation.", ge=1, le=100_000)] = 1000
    max_animation_pixels: Annotated[
        int, _about("Most pixels of all frames of an animation together.", ge=1, le=2**36)
    ] = 1_000_000_000
    widths: Annotated[str, _about("Widths of the default variants.")] = "320,800,1600"
    formats: Annotated[str, _about("Formats of the default variants: jpeg, webp, avif, png.")] = "jpeg,webp,avif"
    variants: Annotated[
        str, _about("The default variants as a JSON list, as in `POST /images`; replaces widths and formats.")
    ] = ""
    url_seconds: Annotated[int, _about("Lifetime of the signed URLs of variants.", ge=1, le=604_800)] = 3600
    public_url: Annotated[
        str, _about("Address of this server in signed URLs of a directory; empty: the `Host` of the request.")
    ] = ""
    cdn: Annotated[str, _about("`none`, or the id of the CloudFront distribution to purge.")] = "none"
    cdn_endpoint_url: Annotated[str, _about("Another endpoint of the CloudFront API; empty: that of AWS.")] = ""
    access_key_id: Annotated[str, _about("Access key of the S3 storage; empty: the AWS variables or the role.")] = ""
    secret_access_key: Annotated[Secret, _about("Secret key of the S3 storage.")] = ""

    def __post_init__(self) -> None:
        """What is wrong is found when a process starts, not by the first upload."""
        for name, (form, allowed) in _FORMS.items():
            if not re.fullmatch(form, getattr(self, name)):
                raise ValueError(f"HOLDFAST_IMAGES_{name.upper()} must be {allowed}")
        if self.storage_url:
            try:
                check_shared_storage_url(self.storage_url)
            except Invalid as error:
                raise ValueError(f"HOLDFAST_IMAGES_STORAGE_URL is an {error}") from None
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise ValueError("HOLDFAST_IMAGES_ACCESS_KEY_ID and HOLDFAST_IMAGES_SECRET_ACCESS_KEY are set together")
        self.default_variants()

    @property
    def limits(self) -> ImageLimits:
        return ImageLimits(self.max_pixels, self.max_frames, self.max_animation_pixels)

    @property
    def has_cdn(self) -> bool:
        return self.cdn.lower() not in ("", "none")

    def default_variants(self) -> list[Variant]:
        try:
            if self.variants:
                return read_variants(self.variants)
            if not re.fullmatch(r" *\d+ *(, *\d+ *)*", self.widths):
                raise ValueError("widths are whole numbers with commas between them, such as 320,800")
            widths = [int(width) for width in self.widths.split(",")]
            formats = [word.strip() for word in self.formats.split(",")]
            return checked([msgspec.convert({"width": w, "format": f}, Variant) for w in widths for f in formats])
        except (ValueError, Invalid) as error:
            names = "VARIANTS" if self.variants else "WIDTHS or HOLDFAST_IMAGES_FORMATS"
            raise ValueError(f"HOLDFAST_IMAGES_{names} is invalid: {error}") from None
