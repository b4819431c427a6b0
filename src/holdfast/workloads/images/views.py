"""What the HTTP API shows of an image."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from holdfast.extend import Request
from holdfast.storage import Signer
from holdfast.workloads.images import objects
from holdfast.workloads.images.variants import MEDIA_TYPE, Format, Variant, stored_variants

PATH = "/images/{image_id}/{variant}"
SIGNED = f"{PATH}/signed"


def _about(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class AcceptedImage(msgspec.Struct, rename="camel"):
    image_id: str
    job_id: str
    status: str


class ControlJob(msgspec.Struct, rename="camel"):
    job_id: str


class VariantView(msgspec.Struct, rename="camel"):
    name: str
    width: int
    height: int
    format: Format
    bytes: int
    sha256: str
    url: Annotated[str, _about("Signed: it needs no key, and expires.")]


class ImageError(msgspec.Struct):
    code: str
    message: str


class ImageView(msgspec.Struct, rename="camel", omit_defaults=True):
    image_id: str
    job_id: Annotated[str, _about("The newest job that processes it.")]
    status: Annotated[str, _about("`queued`, `processing`, `completed`, `failed_retryable` or `failed`.")]
    content_type: Annotated[str, _about("Of the upload, by its bytes.")]
    width: Annotated[int, _about("Of the upload, as it is displayed: after its orientation.")]
    height: int
    frames: Annotated[int, _about("1, or those of an animation.")]
    bytes: Annotated[int, _about("Size of the upload.")]
    sha256: Annotated[str, _about("Of the upload, in hexadecimal.")]
    blurhash: Annotated[str | None, _about("A placeholder to show while it loads (BlurHash).")]
    dhash: Annotated[str | None, _about("64 bits in hexadecimal; few of them differ between similar images.")]
    color: Annotated[str | None, _about("The dominant color, such as `#316e91`.")]
    variants: list[VariantView]
    created_at: datetime
    updated_at: datetime
    error: ImageError | None = None


class ImagePage(msgspec.Struct, rename="camel"):
    images: list[ImageView]
    next_cursor: str | None


class Urls:
    """Signed URLs: by S3, or for other storage by our own route."""

    def __init__(self, signer: Signer, base: str, seconds: int) -> None:
        self._signer, self._base, self._seconds = signer, base, seconds

    async def of(self, row: Any) -> str:
        storage = objects.storage()
        if storage.presigns:
            return await storage.signed_url("GET", row["storage_key"], self._seconds)
        path = SIGNED.format(image_id=row["image_id"], variant=row["name"])
        return f"{self._base}{path}?token={self._signer.sign('GET', signed_name(row), self._seconds)}"


def signed_name(row: Any) -> str:
    """What a token of ours is for."""
    return f"{row['image_id']}/{row['name']}"


async def urls(request: Request) -> Urls:
    settings = request.settings
    return Urls(await signer(request), request.base_url(settings.public_url), settings.url_seconds)


async def signer(request: Request) -> Signer:
    return Signer(await request.secret("urls"))


async def image_views(images: list[Any], variants: list[Any], links: Urls) -> list[ImageView]:
    by_image: dict[str, list[Any]] = {}
    for row in variants:
        by_image.setdefault(row["image_id"], []).append(row)
    return [await _image_view(image, by_image.get(image["id"], []), links) for image in images]


async def _image_view(image: Any, rows: list[Any], links: Urls) -> ImageView:
    wanted = {name: place for place, name in enumerate(each.name for each in stored_variants(image["wanted"]))}
    rows = sorted(rows, key=lambda row: wanted.get(row["name"], len(wanted)))
    error = ImageError(image["error_code"], image["error_message"]) if image["error_code"] else None
    return ImageView(
        image_id=image["id"],
        **{name: image[name] for name in ("job_id", "status", "content_type", "width", "height", "frames", "bytes")},
        **{name: image[name] for name in ("sha256", "blurhash", "dhash", "color", "created_at", "updated_at")},
        variants=[await _variant_view(row, links) for row in rows],
        error=error,
    )


async def _variant_view(row: Any, links: Urls) -> VariantView:
    size = {name: row[name] for name in ("name", "width", "height", "bytes", "sha256")}
    return VariantView(**size, format=variant_of(row).format, url=await links.of(row))


def variant_of(row: Any) -> Variant:
    return msgspec.json.decode(row["spec"], type=Variant)


def media_type_of(row: Any) -> str:
    return MEDIA_TYPE[variant_of(row).format]
