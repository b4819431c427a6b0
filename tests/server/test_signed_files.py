"""Signed URLs of a directory, as a browser uses them: without a key, and for nothing else than they say."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.clock import MovableClock
from holdfast.server.extensions.routes import mount
from holdfast.server.extensions.signed_files import SignedFiles
from holdfast.storage import Signer, Storage, open_storage
from tests.server.steps import Served, serving

KEY = "videos/7-1/720p/é 1.mp4"
LIMIT = 2_000_000


class Files(NamedTuple):
    served: Served
    storage: Storage
    clock: MovableClock


@pytest.fixture
async def files(fresh_sqlite_url: str, tmp_path: Path) -> AsyncIterator[Files]:
    clock = MovableClock()
    signer = Signer(b"a secret of the tests", clock)
    async with open_storage(tmp_path / "files", signer=signer, base_url="/media/files") as storage:
        mounts = [mount("media", "/media/files", SignedFiles(storage), scope=None, body_max=LIMIT)]
        async with serving(fresh_sqlite_url, mounts=mounts) as served:
            yield Files(served, storage, clock)


async def test_a_signed_url_reads_one_object_and_its_ranges(files: Files) -> None:
    http = files.served.http
    await files.storage.put(KEY, b"0123456789", content_type="video/mp4")
    url = await files.storage.signed_url("GET", KEY, 60)
    whole = await http.get(url)
    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, b"0123456789", "video/mp4")
    assert (await http.get(url, headers={"range": "bytes=2-4"})).content == b"234"
    assert (await http.get(url, headers={"if-none-match": whole.headers["etag"]})).status_code == 304
    for refused in (http.put(url, content=b"x"), http.delete(url), http.get(url.replace("720p", "1080p"))):
        assert (await refused).json()["code"] == "invalid_signature"
    assert (await http.get(f"/media/files/{KEY}")).status_code == 403
    files.clock.advance(60)
    assert (await http.get(url)).json()["code"] == "signature_expired"


async def test_a_signed_url_writes_one_object_within_the_limit_of_the_mount(files: Files) -> None:
    http, url = files.served.http, await files.storage.signed_url("PUT", KEY, 60)
    put = await http.put(url, content=b"x" * LIMIT, headers={"content-type": "video/mp4"})
    info = await files.storage.head(KEY)
    assert (put.status_code, put.headers["etag"]) == (200, info.etag)
    assert (info.size, info.content_type) == (LIMIT, "video/mp4")
    assert (await http.put(url, content=b"x" * (LIMIT + 1))).json()["code"] == "body_too_large"
    assert (await files.storage.head(KEY)).size == LIMIT
    deleted = await http.delete(await files.storage.signed_url("DELETE", KEY, 60))
    assert (deleted.status_code, await files.storage.exists(KEY)) == (204, False)
    gone = await http.get(await files.storage.signed_url("GET", KEY, 60))
    assert (gone.status_code, gone.json()["code"]) == (404, "object_not_found")
