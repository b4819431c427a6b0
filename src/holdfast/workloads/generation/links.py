"""Signed URLs of images and thumbnails: by S3, or for other storage by a route of this service."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.extend import Request
from holdfast.storage import Signer
from holdfast.workloads.generation import objects
from holdfast.workloads.generation.extension import ext

Kind = Literal["file", "thumbnail"]
FILE = "/assets/{asset_id}/{kind}"
SIGNED = f"{FILE}/signed"
KEY_OF: dict[Kind, str] = {"file": "storage_key", "thumbnail": "thumbnail_key"}


class Links:
    def __init__(self, signer: Signer, base: str, seconds: int) -> None:
        self._signer, self._base, self._seconds = signer, base, seconds

    async def of(self, asset: Any, kind: Kind) -> str | None:
        """None: there is no thumbnail yet."""
        key = asset[KEY_OF[kind]]
        if key is None:
            return None
        if objects.storage().presigns:
            return await objects.storage().signed_url("GET", key, self._seconds)
        token = self._signer.sign("GET", signed_name(asset["id"], kind), self._seconds)
        return f"{self._base}{SIGNED.format(asset_id=asset['id'], kind=kind)}?token={token}"


def signed_name(asset_id: str, kind: str) -> str:
    """What a token of ours is for."""
    return f"{asset_id}/{kind}"


async def links(request: Request) -> Links:
    settings = request.settings
    return Links(await signer(request), request.base_url(settings.public_url), settings.url_seconds)


async def signer(request: Request) -> Signer:
    return Signer(await request.secret("urls"), ext.app.clock)
