"""A storage that accepts connections and does not answer: downloads say so, however short the usual time limit is."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.server.http import endpoint
from holdfast.settings import Settings
from holdfast.workloads.images import objects
from holdfast.workloads.images.service import app
from tests.server.steps import serving
from tests.servers.s3 import S3Server
from tests.workloads.images.steps import ON_SQLITE, Service, Sets, images_working, picture

MISSING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def slow_s3(answers: int) -> AsyncIterator[str]:
    """The URL of a storage that answers this many requests, and no others. It has no objects."""
    left = answers

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if left:
                    left -= 1
                    writer.write(MISSING)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"s3://slow/{secrets.token_hex(8)}?endpoint=http://127.0.0.1:{port}&region=us-east-1"
    finally:
        server.close()


@pytest.fixture
async def image(store_url: str, tmp_path: Path, images_settings: Sets) -> AsyncIterator[dict[str, Any]]:
    """An image with variants, as clients see it."""
    images_settings(storage_url=str(tmp_path / "objects"))
    app.settings = Settings(database_url=store_url)
    async with serving(store_url, app=app) as served, images_working():
        made = await Service(served, tmp_path / "objects").made(picture(400, 300))
    await app.close()
    app.settings = Settings(database_url=store_url)
    yield made
    await app.close()


@ON_SQLITE
@pytest.mark.parametrize("answers", [0, 1, 2])
async def test_a_download_from_a_storage_that_does_not_answer_is_storage_unavailable(
    image: dict[str, Any], answers: int, store_url: str, images_settings: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the object, for the mark that shows whether it is the right storage, or for the bucket."""
    variant = image["variants"][0]
    monkeypatch.setattr(objects, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(endpoint, "ANSWER_SECONDS_MAX", 0.01)  # too short for a storage that does not answer
    signed = httpx2.URL(variant["url"]).raw_path.decode()
    async with serving(store_url, app=app) as served:
        for path in (f"/images/{image['imageId']}/{variant['name']}", signed):
            async with slow_s3(answers) as url:
                images_settings(storage_url=url, **S3Server.credentials)
                answer = await served.http.get(path)
                assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable"), path
