"""An upload: streamed to the storage while it is hashed and its header is read."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast.errors import Invalid, Malformed, StorageError, UnsupportedMedia
from holdfast.extend import FormPart, Request
from holdfast.workloads.images import faults, objects
from holdfast.workloads.images.extension import ext
from holdfast.workloads.images.faults import ImageFault
from holdfast.workloads.images.probe import ImageInfo, ImageLimits, Prober

FORM = "multipart/form-data"
FILE, VARIANTS = "file", "variants"
VARIANTS_BYTES_MAX = 65_536
_marked = set[str]()  # as far as this process knows
PROBED_BYTES = 4096  # read before anything is stored: most files that are no images show it here


@dataclass
class Upload:
    """What was uploaded. `variants`: the text of that field of the form."""

    image_id: str
    key: str
    sha256: str = ""
    size: int = 0
    found: ImageInfo | None = None
    variants: str | None = None


async def receive(request: Request, image_id: str) -> Upload:
    """Raises what the client is told: `unsupported_image`, `image_too_large` and so on."""
    upload = Upload(image_id, objects.original_key(image_id))
    if request.content_type != FORM:
        await _store(request, upload, request.stream())
        return upload
    try:
        await _read_form(request, upload)
    except Exception:
        if upload.found is not None:
            await discard(request, upload)
        raise
    return upload


async def _read_form(request: Request, upload: Upload) -> None:
    async for part in request.parts():
        if part.name == FILE:
            _only_once(FILE, upload.found)
            await _store(request, upload, aiter(part))
        elif part.name == VARIANTS:
            _only_once(VARIANTS, upload.variants)
            upload.variants = await _text(part)
    if upload.found is None:
        raise Malformed(f"the form has no field {FILE!r} with an image", code="file_missing")


def _only_once(name: str, before: object) -> None:
    if before is not None:
        raise sent_twice(name, "is in the form twice")


def sent_twice(name: str, where: str) -> Malformed:
    return Malformed(f"{name!r} {where}; send it once", code="conflicting_input")


async def _text(part: FormPart) -> str:
    try:
        return await part.text(max_bytes=VARIANTS_BYTES_MAX)
    except Malformed as error:
        raise Invalid(f"invalid variants: {error.message}", code="invalid_variants") from None


async def _store(request: Request, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
    settings = ext.settings
    prober = Prober(ImageLimits(settings.max_pixels, settings.max_frames, settings.max_animation_pixels))
    try:
        first, is_whole = await _first(prober, chunks)
        info = prober.finish() if is_whole else None
        await _mark(request)
        async with request.tx() as tx:  # written down first: no crash leaves an object that nothing leads to
            await tx.run(ext.q.add_garbage, storage_key=upload.key, job_id=None, seconds=objects.LEFTOVER_SECONDS)
        try:
            await objects.storage().put(upload.key, _hashed(upload, prober, first, chunks))
            upload.found = info or prober.finish()
            request.set_upload_type(upload.found.media_type)
        except StorageError:
            raise  # the object may appear after the request was given up: a sweep deletes it a day later
        except Exception:
            await discard(request, upload)
            raise
    except ImageFault as fault:
        raise refusal(fault) from None


async def _mark(request: Request) -> None:
    """The first upload to a storage marks it. Afterwards it has the mark, or it is not that storage."""
    url = objects.storage().url
    if url in _marked and await objects.has_marker():
        return
    if await request.read(lambda tx: tx.one(ext.q.storage, url=url)) is None:
        await objects.put_marker()
        async with request.tx() as tx:
            await tx.run(ext.q.add_storage, url=url)
    await objects.require_marker()
    _marked.add(url)


async def _first(prober: Prober, chunks: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """The first bytes, and whether they are all of them."""
    first, is_whole = b"", True
    async for chunk in chunks:
        first += chunk
        if len(first) >= PROBED_BYTES:
            is_whole = False
            break
    prober.feed(first)
    return first, is_whole


async def _hashed(upload: Upload, prober: Prober, first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    digest, limit = hashlib.sha256(first), ext.settings.max_bytes
    upload.size = len(first)
    if upload.size > limit:
        raise too_large(limit)
    yield first
    async for chunk in chunks:
        upload.size += len(chunk)
        if upload.size > limit:
            raise too_large(limit)
        digest.update(chunk)
        prober.feed(chunk)
        yield chunk
    upload.sha256 = digest.hexdigest()


async def discard(request: Request, upload: Upload) -> None:
    """Nothing refers to it: the next sweep deletes it."""
    async with request.tx() as tx:
        await tx.run(ext.q.discard, storage_key=upload.key)


def too_large(limit: int) -> Invalid:
    return Invalid(f"the image has more than {limit} bytes (HOLDFAST_IMAGES_MAX_BYTES)", code=faults.TOO_LARGE)


def refusal(fault: ImageFault) -> Invalid:
    kind = UnsupportedMedia if fault.code == faults.UNSUPPORTED else Invalid
    return kind(fault.message, code=fault.code)
