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
from holdfast.workloads.images.probe import ImageInfo, Prober

FORM, UNKNOWN = "multipart/form-data", "application/octet-stream"
FILE, VARIANTS = "file", "variants"
VARIANTS_BYTES_MAX = 65_536
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
    request.set_upload_type(UNKNOWN)  # whatever the client says
    prober = Prober(ext.settings.limits)
    try:
        first, is_whole = await _first(prober, chunks)
        info = prober.finish() if is_whole else None
        mark = await _mark(request)
        async with request.tx() as tx:  # written down first: no crash leaves an object that nothing leads to
            await tx.run(ext.q.add_garbage, storage_key=upload.key, job_id=None, seconds=objects.LEFTOVER_SECONDS)
        try:
            await objects.storage().put(upload.key, _hashed(upload, prober, first, chunks))
            await objects.require_mark(mark)  # also afterwards: the volume may have gone meanwhile
            upload.found = info or prober.finish()
            request.set_upload_type(upload.found.media_type)
        except StorageError:
            raise  # the object may appear after the request was given up: a sweep deletes it a day later
        except Exception:
            await discard(request, upload)
            raise
    except ImageFault as fault:
        raise refusal(fault) from None


async def _mark(request: Request) -> str:
    """The mark of the storage, which the first upload makes. Where it is missing, nothing is accepted."""
    mark = await request.read(objects.mark_of)
    if mark is None:
        return await _new_mark(request)
    await objects.require_mark(mark)
    return mark


async def _new_mark(request: Request) -> str:
    made = f"{objects.MARK}{ext.app.ids.bits(64):016x}"
    async with request.tx() as tx:
        await tx.run(ext.q.add_garbage, storage_key=made, job_id=None, seconds=objects.LEFTOVER_SECONDS)
    await objects.put_mark(made)
    async with request.tx() as tx:
        await tx.run(ext.q.add_mark, mark=made)
        mark = await objects.mark_of(tx)
        if mark == made:
            await tx.run(ext.q.keep, keys=[made])
            return made
    await objects.require_mark(mark)  # another request was first
    return str(mark)


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
