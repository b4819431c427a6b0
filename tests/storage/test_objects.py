"""What every kind of storage does, the same way."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import turn
from holdfast.errors import (
    Conflict,
    HoldfastError,
    Invalid,
    NotFound,
    ObjectChanged,
    ObjectNotFound,
    StorageError,
    StorageUnavailable,
)
from holdfast.storage import Storage, objects
from holdfast.storage.bucket import PART_BYTES, Bucket
from holdfast.storage.directory import Directory
from holdfast.storage.objects import CHUNK_BYTES, Data

MIB = 1 << 20
AT_ONCE = 2
ODD = "a folder/é ü%20#?+ &=;.txt"


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


async def keys(storage: Storage, prefix: str = "") -> list[str]:
    return sorted([info.key async for info in storage.list(prefix)])


@pytest.mark.parametrize("key", ["a", "a/b/c.txt", ODD, "x" * 200 + "/" + "y" * 200])
async def test_a_get_returns_what_was_put(storage: Storage, key: str) -> None:
    await storage.put(key, b"hello")
    assert await storage.read(key) == b"hello"
    assert await keys(storage) == [key]


async def test_an_object_has_a_size_a_type_metadata_an_etag_and_a_time(storage: Storage) -> None:
    put = await storage.put("a.txt", b"hello", content_type="text/x-odd", metadata={"made-by": "a test; 1"})
    info = await storage.head("a.txt")
    assert (info.size, info.content_type, dict(info.metadata)) == (5, "text/x-odd", {"made-by": "a test; 1"})
    assert (put.size, put.etag, put.content_type, put.metadata) == (5, info.etag, info.content_type, info.metadata)
    assert info.etag.startswith('"')
    assert abs(info.modified - datetime.now(UTC)) < timedelta(hours=1)


async def test_an_object_keeps_its_response_headers(storage: Storage) -> None:
    headers = {"cache-control": "public, max-age=60", "content-disposition": 'attachment; filename="a.txt"'}
    given = {name.title(): value for name, value in headers.items()}
    put = await storage.put("a", b"hello", headers=given, metadata={"n": "1"})
    await storage.put("large", chunks(b"x" * PART_BYTES, b"y"), headers=given)
    await storage.copy("a", "b")
    assert put.headers == headers
    for key in ("a", "b", "large"):
        assert (await storage.head(key)).headers == headers
    assert (await storage.head("b")).metadata == {"n": "1"}
    await storage.put("a", b"hello")
    assert not (await storage.head("a")).headers


async def test_the_default_content_type_is_octet_stream(storage: Storage) -> None:
    await storage.put("a", b"hello")
    assert (await storage.head("a")).content_type == "application/octet-stream"
    assert not (await storage.head("a")).metadata


async def test_a_second_put_replaces_the_whole_object(storage: Storage) -> None:
    first = await storage.put("a", b"hello", content_type="text/plain", metadata={"n": "1"})
    await storage.put("a", b"hi")
    info = await storage.head("a")
    assert await storage.read("a") == b"hi"
    assert (info.content_type, info.metadata) == ("application/octet-stream", {})
    assert info.etag != first.etag


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b""],
        [b"a", b"", b"b"],
        [b"x" * PART_BYTES],
        [b"x" * (PART_BYTES - 1), b"yz", b"w" * 3 * MIB],
        [bytes([n]) * MIB for n in range(12)],
    ],
    ids=["nothing", "empty", "small", "one part", "two parts", "three parts"],
)
async def test_an_object_can_be_put_in_chunks(storage: Storage, parts: list[bytes]) -> None:
    info = await storage.put("a", chunks(*parts), content_type="text/plain", metadata={"n": "1"})
    whole = b"".join(parts)
    assert info.size == len(whole)
    assert await storage.head("a") == info or (await storage.head("a")).etag == info.etag
    assert (await storage.head("a")).content_type == "text/plain"
    assert await storage.read("a") == whole


async def test_a_download_has_chunks_of_bounded_size(storage: Storage) -> None:
    whole = b"".join(bytes([n]) * CHUNK_BYTES for n in range(9)) + b"x"
    await storage.put("a", whole)
    download = await storage.get("a")
    sizes = [len(chunk) async for chunk in download]
    assert download.info.size == download.size == len(whole)
    assert sizes == [CHUNK_BYTES] * 9 + [1]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, None, b"0123456789"),
        (3, 7, b"3456"),
        (9, None, b"9"),
        (4, 100, b"456789"),
        (10, None, b""),
        (50, 60, b""),
        (4, 4, b""),
    ],
)
async def test_a_range_of_an_object_can_be_read(storage: Storage, start: int, end: int | None, expected: bytes) -> None:
    await storage.put("a", b"0123456789")
    download = await storage.get("a", start, end)
    assert await download.read() == expected
    assert download.size == len(expected)


@pytest.mark.parametrize(("start", "end"), [(-1, None), (3, 2)])
async def test_an_invalid_range_is_rejected(storage: Storage, start: int, end: int) -> None:
    with pytest.raises(Invalid) as refused:
        await storage.get("a", start, end)
    assert refused.value.code == "invalid_range"


async def test_a_download_does_not_mix_two_versions_of_an_object(storage: Storage) -> None:
    await storage.put("a", b"x" * (CHUNK_BYTES + 1))
    download = aiter(await storage.get("a"))
    assert set(await anext(download)) == set(b"x")
    await storage.put("a", b"y" * (CHUNK_BYTES + 1))
    with pytest.raises(ObjectChanged) as changed:
        await anext(download)
    assert isinstance(changed.value, Conflict)
    assert changed.value.code == "object_changed"


async def test_a_missing_object_is_not_found(storage: Storage) -> None:
    await storage.put("folder/a", b"")
    for missing in ("b", "folder", "folder/b", "folder/a/b"):
        for asked in (storage.head(missing), storage.get(missing), storage.copy(missing, "c")):
            with pytest.raises(ObjectNotFound, match=repr(missing)) as error:
                await asked
            assert isinstance(error.value, NotFound)
            assert error.value.code == "object_not_found"
        assert not await storage.exists(missing)
    assert await storage.exists("folder/a")


async def test_a_failed_upload_leaves_no_object(storage: Storage) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (PART_BYTES + MIB)
        yield b"x"
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        await storage.put("a", broken())
    assert await keys(storage) == []


@pytest.mark.parametrize("data", ["text", None, 7, [b"x"]], ids=lambda data: type(data).__name__)
async def test_a_put_of_something_other_than_bytes_is_rejected(storage: Storage, data: Any) -> None:
    for given in (data, chunks(b"hello", data, b"more")):
        with pytest.raises(Invalid, match=type(data).__name__) as refused:
            await storage.put("a", given)
        assert refused.value.code == "invalid_field"
    assert await keys(storage) == []


async def test_a_source_may_reuse_its_buffer(storage: Storage) -> None:
    async def source() -> AsyncIterator[bytes]:
        buffer = bytearray(MIB)
        for n in range(8):
            buffer[:] = bytes([n]) * MIB
            yield buffer

    await storage.put("a", source())
    assert await storage.read("a") == b"".join(bytes([n]) * MIB for n in range(8))


async def test_files_can_be_uploaded_and_downloaded(storage: Storage, tmp_path: Path) -> None:
    whole = b"".join(bytes([n]) * MIB for n in range(7)) + b"end"
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(whole)
    assert (await storage.put("a", source)).size == len(whole)
    await (await storage.get("a")).save(target)
    assert target.read_bytes() == whole
    await (await storage.get("a", 0, 5)).save(str(target))
    assert target.read_bytes() == whole[:5]
    with pytest.raises(FileNotFoundError):
        await storage.put("b", tmp_path / "missing")
    download = await storage.get("a")
    await storage.put("a", b"another")
    with pytest.raises(ObjectChanged):
        await download.save(target)
    assert target.read_bytes() == whole[:5]
    assert not [name for name in os.listdir(tmp_path) if "unfinished" in name]
    assert await keys(storage) == ["a"]


@pytest.mark.parametrize("promised", [4, 6])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_wrong_content_length_is_rejected(storage: Storage, promised: int, streamed: bool) -> None:
    await storage.put("a", b"before")
    with pytest.raises(Invalid, match="has 5 bytes") as refused:
        await storage.put("a", chunks(b"he", b"llo") if streamed else b"hello", size=promised)
    assert refused.value.code == "invalid_object_size"
    assert await storage.read("a") == b"before"
    await storage.put("a", chunks(b"he", b"llo"), size=5)
    assert await storage.read("a") == b"hello"


async def test_a_canceled_put_leaves_no_object(storage: Storage) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * MIB
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(storage.put("a", endless()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await storage.exists("a")


async def test_the_source_is_read_in_the_task_that_puts(storage: Storage) -> None:
    async def source() -> AsyncIterator[bytes]:
        async with asyncio.timeout(60):
            for _ in range(3):
                assert asyncio.current_task() is task
                yield b"x"

    task = asyncio.create_task(storage.put("a", source()))
    await task
    assert await storage.read("a") == b"xxx"


async def test_concurrent_puts_from_the_same_storage_do_not_deadlock(storage: Storage) -> None:
    await storage.put("a", b"x" * 100)

    async def copied(n: int) -> None:
        await storage.put(f"copies/{n}", aiter(await storage.get("a")))

    await asyncio.gather(*(copied(n) for n in range(40)))
    assert len(await keys(storage, "copies")) == 40


@pytest.fixture
async def go_on(storage: Storage) -> AsyncIterator[asyncio.Event]:
    """As many puts as there are threads wait for it."""
    go_on, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        begun.release()
        await go_on.wait()

    puts = [asyncio.create_task(storage.put(f"slow/{n}", slow())) for n in range(AT_ONCE)]
    for _ in puts:
        await begun.acquire()
    yield go_on
    go_on.set()
    await asyncio.gather(*puts)


@pytest.fixture
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in (Bucket, Directory):
        monkeypatch.setattr(backend, "puts_at_once", AT_ONCE)


SMALL: dict[str, Callable[[], Data]] = {"bytes": lambda: b"x", "chunks": lambda: chunks(b"x", b"y")}


@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("small", SMALL.values(), ids=SMALL)
class TestAllThreadsAreTaken:
    async def test_a_put_waits_until_a_slow_one_ends(
        self, storage: Storage, go_on: asyncio.Event, small: Callable[[], Data]
    ) -> None:
        waiting = [asyncio.create_task(storage.put(f"a/{n}", small())) for n in range(2 * AT_ONCE)]
        await turn()
        go_on.set()
        await asyncio.gather(*waiting)
        assert len(await keys(storage, "a")) == 2 * AT_ONCE

    async def test_a_put_does_not_wait_for_long(
        self,
        storage: Storage,
        go_on: asyncio.Event,
        small: Callable[[], Data],
        told: list[tuple[str, BaseException | None]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(objects, "PUT_WAIT_SECONDS", 0.01)
            with pytest.raises(StorageUnavailable, match="busy with 2 uploads, the most at once; try again"):
                await storage.put("a", small())
        assert [type(error) for _, error in told] == [StorageUnavailable]
        go_on.set()
        await storage.put("b", small())
        assert "a" not in await keys(storage)

    async def test_a_canceled_put_does_not_begin(
        self, storage: Storage, go_on: asyncio.Event, small: Callable[[], Data]
    ) -> None:
        task = asyncio.create_task(storage.put("a", small()))
        await turn()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await asyncio.gather(*(storage.put(f"b/{n}", small()) for n in range(2 * AT_ONCE)))
        assert "a" not in await keys(storage)


async def test_a_listing_contains_the_objects_of_a_folder(storage: Storage) -> None:
    for key in ("a/1", "a/b/2", "ab/3", "c"):
        await storage.put(key, b"x" * len(key))
    assert await keys(storage) == ["a/1", "a/b/2", "ab/3", "c"]
    assert await keys(storage, "a") == await keys(storage, "a/") == ["a/1", "a/b/2"]
    assert await keys(storage, "missing") == []
    [info] = [info async for info in storage.list("a/b")]
    head = await storage.head("a/b/2")
    assert (info.key, info.size, info.etag, info.modified) == ("a/b/2", 5, head.etag, head.modified)


async def test_deleting_an_object_twice_is_no_error(storage: Storage) -> None:
    for key in ("a/1", "a/2", "b"):
        await storage.put(key, b"x")
    await storage.delete("a/1", "a/2", "missing")
    await storage.delete("a/1")
    await storage.delete()
    assert await keys(storage) == ["b"]
    await storage.put("a", b"where a folder was")
    assert await storage.read("a") == b"where a folder was"


async def test_deleting_a_folder_deletes_everything_below_it(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.storage.storage.DELETED_AT_ONCE", 2)
    for key in ("a/1", "a/2", "a/b/3", "a/b/4", "a/c/d/5", "ab", "a.txt"):
        await storage.put(key, b"x")
    assert await storage.delete_folder("a/") == 5
    assert await storage.delete_folder("a") == 0
    assert await keys(storage) == ["a.txt", "ab"]
    for nothing in ("", "/", "..", ".holdfast"):
        with pytest.raises(Invalid) as refused:
            await storage.delete_folder(nothing)
        assert refused.value.code == "invalid_object_key"


async def test_a_copy_is_complete_and_independent(storage: Storage) -> None:
    await storage.put("a", b"hello", content_type="text/plain", metadata={"n": "1"})
    await storage.put("b", b"before", content_type="text/html")
    await storage.copy("a", "b")
    await storage.copy("a", ODD)
    await storage.copy("a", "a")
    await storage.put("a", b"another")
    await storage.delete("a")
    for key in ("b", ODD):
        info = await storage.head(key)
        assert (info.content_type, dict(info.metadata)) == ("text/plain", {"n": "1"})
        assert await storage.read(key) == b"hello"


BAD_KEYS = [
    *("", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "a/./b", "a\0b", "a\nb", "a\x7fb", "a\\b"),
    *("x" * 1025, "é" * 513, "\ud800", ".holdfast/staging/1", ".holdfast", 7, None),
]


@pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: ascii(key)[:20])
async def test_a_key_with_path_traversal_is_rejected(storage: Storage, key: str) -> None:
    for asked in (
        storage.put(key, b""),
        storage.get(key),
        storage.head(key),
        storage.delete("fine", key),
        storage.copy(key, "b"),
        storage.copy("b", key),
        storage.signed_url("GET", key),
    ):
        with pytest.raises(Invalid) as refused:
            await asked
        assert refused.value.code == "invalid_object_key"


async def test_a_key_of_the_maximum_length_is_accepted(storage: Storage) -> None:
    prefix = len(storage.url.removeprefix("s3://tests/")) + 1 if storage.bucket == "tests" else 0
    key = "/".join(["x" * 127] * 8)[prefix:] + "y"
    await storage.put(key, b"x")
    assert await keys(storage) == [key]
    if prefix:
        with pytest.raises(Invalid, match="too long for S3"):
            await storage.put(key + "z", b"x")


@pytest.mark.parametrize("prefix", ["..", "/a", "a//b", ".holdfast", ".holdfast/staging"])
async def test_an_invalid_prefix_is_rejected(storage: Storage, prefix: str) -> None:
    with pytest.raises(Invalid):
        await keys(storage, prefix)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"content_type": ""}, "invalid_field"),
        ({"content_type": "text/plain\r\nx: y"}, "invalid_field"),
        ({"content_type": "x" * 256}, "invalid_field"),
        ({"metadata": {"Upper": "x"}}, "invalid_field"),
        ({"metadata": {"": "x"}}, "invalid_field"),
        ({"metadata": {"content-type": "x"}}, "invalid_field"),
        ({"metadata": {"storage-class": "x"}}, "invalid_field"),
        ({"metadata": {"a": "x\ny"}}, "invalid_field"),
        ({"metadata": {"a": "é"}}, "invalid_field"),
        ({"metadata": {"a": " x"}}, "invalid_field"),
        ({"metadata": {"a": "x" * 2048}}, "invalid_field"),
        ({"metadata": {"a": 1}}, "invalid_field"),
        ({"metadata": {1: "a"}}, "invalid_field"),
        ({"content_type": None}, "invalid_field"),
        ({"headers": {"x-other": "x"}}, "invalid_field"),
        ({"headers": {"content-type": "text/plain"}}, "invalid_field"),
        ({"headers": {"cache-control": ""}}, "invalid_field"),
        ({"headers": {"cache-control": "x\r\ny: z"}}, "invalid_field"),
        ({"headers": {"cache-control": 60}}, "invalid_field"),
        ({"headers": {"cache-control": "x" * 1025}}, "invalid_field"),
    ],
)
async def test_metadata_that_http_headers_cannot_carry_is_rejected(
    storage: Storage, given: dict[str, str], code: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await storage.put("a", b"x", **given)
    assert refused.value.code == code
    assert not await storage.exists("a")


async def test_an_error_of_the_source_is_raised_unchanged(
    storage: Storage, told: list[tuple[str, BaseException | None]]
) -> None:
    """A client that hangs up in the middle of an upload must not look like an outage of S3."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await storage.put("a", broken())
    with pytest.raises(Invalid):
        await storage.put("a", chunks(b"x"), size=2)
    assert told == [("put", None), ("put", None)]


async def test_using_closed_storage_is_an_error(storage: Storage) -> None:
    await storage.close()
    for asked in (storage.put("a", b"x"), storage.put("a", chunks(b"x")), storage.head("a")):
        with pytest.raises(StorageError, match="was closed"):
            await asked


async def test_the_observer_is_called_for_each_operation(
    storage: Storage, told: list[tuple[str, BaseException | None]]
) -> None:
    await storage.put("a", b"x")
    await storage.put("b", chunks(b"x"))
    await storage.read("a")
    await storage.copy("a", "c")
    await keys(storage)
    await storage.delete("a")
    with pytest.raises(ObjectNotFound):
        await storage.head("a")
    operations = [operation for operation, _ in told]
    assert operations[:5] == ["put", "put", "head", "get", "copy"]
    assert set(operations[5:-2]) == {"list"}
    assert operations[-2:] == ["delete", "head"]
    failures = [error for _, error in told if error]
    assert [error.code for error in failures if isinstance(error, HoldfastError)] == ["object_not_found"]
    assert len(failures) == 1
