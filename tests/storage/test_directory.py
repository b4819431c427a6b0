"""What is special about a directory: files that others can see, links, folders."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.errors import Invalid, ObjectNotFound, StorageDenied, StorageError, StorageUnavailable
from holdfast.storage import Storage, open_storage
from holdfast.storage.directory import Directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def storage(opened: Callable[..., Storage]) -> Storage:
    return opened("directory")


def own_files(root: Path) -> list[Path]:
    return [path for path in (root / ".holdfast").rglob("*") if path.is_file()]


async def listed(storage: Storage) -> list[str]:
    return sorted([info.key async for info in storage.list()])


async def test_objects_are_plain_files(storage: Storage, root: Path) -> None:
    await storage.put("a/b.txt", b"hello", content_type="text/plain")
    assert (root / "a/b.txt").read_bytes() == b"hello"
    (root / "by-hand.txt").write_bytes(b"hi")
    assert await storage.read("by-hand.txt") == b"hi"
    assert await listed(storage) == ["a/b.txt", "by-hand.txt"]


async def test_a_file_url_names_the_same_directory(storage: Storage, root: Path) -> None:
    await storage.put("a b", b"hello")
    async with open_storage(root.as_uri()) as same:
        assert await same.read("a b") == b"hello"
        assert same.url == storage.url == root.as_uri()


@pytest.mark.parametrize("link", ["out", "in/out", "back"])
async def test_symbolic_links_are_not_followed(storage: Storage, root: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    await storage.put("in/own", b"own")
    (root / link).symlink_to(root / "in" if link == "back" else outside)
    inner = f"{link}/{'own' if link == 'back' else 'secret'}"
    for asked in (
        storage.read(inner),
        storage.head(inner),
        storage.put(f"{link}/new", b"x"),
        storage.delete(inner),
        storage.copy(inner, "copy"),
        storage.copy("in/own", f"{link}/new"),
    ):
        with pytest.raises(Invalid, match="symbolic link") as refused:
            await asked
        assert refused.value.code == "invalid_object_key"
    assert await listed(storage) == ["in/own"]
    with pytest.raises(Invalid, match="symbolic link"):
        await anext(aiter(storage.list(link)))
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


async def test_a_symbolic_link_is_not_read_and_can_be_replaced(storage: Storage, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (root / "a").symlink_to(secret)
    for asked in (storage.read("a"), storage.copy("a", "b"), storage.delete("a")):
        with pytest.raises(Invalid, match="symbolic link"):
            await asked
    assert await listed(storage) == []
    await storage.put("a", b"mine")
    assert await storage.read("a") == b"mine"
    assert secret.read_bytes() == b"secret"


async def test_only_regular_files_are_objects(storage: Storage, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(ObjectNotFound):
        await storage.read("pipe")
    assert await listed(storage) == []


async def test_a_key_cannot_also_be_a_folder(storage: Storage) -> None:
    await storage.put("a/b", b"x")
    await storage.put("c", b"x")
    for key in ("a", "c/d"):
        with pytest.raises(Invalid, match="cannot also be a folder"):
            await storage.put(key, b"x")
    with pytest.raises(Invalid, match="cannot also be a folder"):
        await storage.copy("c", "a")
    assert await listed(storage) == ["a/b", "c"]


async def test_a_key_segment_longer_than_a_file_name_is_rejected(storage: Storage) -> None:
    with pytest.raises(Invalid, match="255") as refused:
        await storage.put("x" * 256, b"x")
    assert refused.value.code == "invalid_object_key"


async def test_replacing_copying_and_deleting_leave_no_files_behind(storage: Storage, root: Path) -> None:
    for content in (b"one", b"two"):
        await storage.put("a/b/c", content, content_type="text/plain", metadata={"n": "1"})
    await storage.copy("a/b/c", "d")
    await storage.copy("a/b/c", "d")
    assert len(own_files(root)) == 2  # the descriptions of two objects
    await storage.delete("a/b/c", "d")
    assert own_files(root) == []
    assert sorted(os.listdir(root)) == [".holdfast"]


async def test_a_content_type_that_the_suffix_implies_needs_no_second_file(storage: Storage, root: Path) -> None:
    for key, content_type in (
        ("a/b.webp", "image/webp"),
        ("a.b/C.JPG", "image/jpeg"),
        ("a.tar.gz", "application/gzip"),
    ):
        await storage.put(key, b"hello", content_type=content_type)
        assert (await storage.head(key)).content_type == content_type
    await storage.put("a.unknown", b"hello")
    assert (await storage.head("a.unknown")).content_type == "application/octet-stream"
    assert own_files(root) == []
    (root / "by-hand.png").write_bytes(b"hello")
    assert (await storage.head("by-hand.png")).content_type == "image/png"


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"content_type": "image/jpeg"},
        {"content_type": "image/webp; charset=utf-8"},
        {"content_type": "image/webp", "metadata": {"n": "1"}},
        {"content_type": "image/webp", "headers": {"cache-control": "no-store"}},
    ],
)
async def test_a_description_that_the_suffix_does_not_imply_is_stored(
    storage: Storage, root: Path, described: dict[str, Any]
) -> None:
    put = await storage.put("a.webp", b"hello", **described)
    assert (await storage.head("a.webp")).description == put.description
    assert len(own_files(root)) == 1
    await storage.put("a.webp", b"hello", content_type="image/webp")
    assert (await storage.head("a.webp")).description == ("image/webp", {}, {})
    assert own_files(root) == []


async def test_a_copy_keeps_its_content_type_under_another_suffix(storage: Storage, root: Path) -> None:
    await storage.put("a.webp", b"hello", content_type="image/webp")
    await storage.copy("a.webp", "b.png")
    await storage.copy("b.png", "c.webp")
    for key in ("a.webp", "b.png", "c.webp"):
        assert (await storage.head(key)).content_type == "image/webp"
    assert len(own_files(root)) == 1  # of b.png


async def test_an_object_has_its_name_when_everything_about_it_is_on_disk(
    storage: Storage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes, its description, and the entries of both in their folders; then the put returns."""
    done: list[tuple[str, str]] = []
    fsync, replace, mkdir = os.fsync, os.replace, os.mkdir

    def shown(path: str) -> str:
        parts = Path(path).relative_to(root).parts
        return "/".join(parts[:2] if parts[:1] == (".holdfast",) else parts)

    def synced(file: int) -> None:
        fsync(file)
        done.append(("sync", shown(os.readlink(f"/proc/self/fd/{file}"))))

    def replaced(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        done.append(("name", shown(f"{os.readlink(f'/proc/self/fd/{dst_dir_fd}')}/{target}")))

    def made(name: str, *, dir_fd: int) -> None:
        mkdir(name, dir_fd=dir_fd)
        done.append(("make", shown(f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{name}")))

    await storage.put("first", b"x", metadata={"n": "1"})  # creates the internal folders
    for name, function in (("fsync", synced), ("replace", replaced), ("mkdir", made)):
        monkeypatch.setattr(os, name, function)
    uploads, descriptions = (f".holdfast/{name}" for name in ("uploads", "descriptions"))
    named = [("name", "a/b"), ("sync", "a")]
    await storage.put("a/b", b"x")
    assert done == [("sync", uploads), ("make", "a"), ("sync", ""), *named]
    done.clear()
    await storage.put("a/b", b"y", metadata={"n": "2"})
    assert done == [
        *[("sync", uploads), ("sync", uploads), ("name", descriptions), ("sync", descriptions)],
        *named,
    ]
    done.clear()
    await storage.copy("a/b", "a/c.webp")
    assert done == [
        *[("sync", uploads), ("name", descriptions), ("sync", descriptions)],
        *[("name", "a/c.webp"), ("sync", "a")],
    ]


async def test_a_put_that_is_rejected_leaves_no_description(storage: Storage, root: Path) -> None:
    await storage.put("a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(Invalid, match="cannot also be a folder"):
            await storage.put(key, b"x", content_type="text/plain")
    assert own_files(root) == []


async def test_concurrent_puts_create_a_folder_once(storage: Storage) -> None:
    names = [f"new/folder/below/{n}.webp" for n in range(9)]
    await asyncio.gather(*(storage.put(name, b"x", content_type="image/webp") for name in names))
    assert await listed(storage) == names


async def test_an_upload_that_fails_leaves_no_file(storage: Storage, root: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        await storage.put("a", broken(), content_type="text/plain")
    assert own_files(root) == []


async def test_a_copy_without_hard_links_copies_the_bytes(
    storage: Storage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    content = os.urandom(3_000_000)
    await storage.put("a", content, content_type="text/plain")
    await storage.copy("a", "b")
    assert await storage.read("b") == content
    assert (await storage.head("b")).content_type == "text/plain"
    assert (root / "a").stat().st_ino != (root / "b").stat().st_ino


async def test_concurrent_puts_and_deletes_in_one_folder_succeed(storage: Storage) -> None:
    async def work(n: int) -> None:
        for _ in range(20):
            await storage.put(f"folder/{n}", b"x" * n, content_type=f"text/{n}")
            assert (await storage.head(f"folder/{n}")).content_type == f"text/{n}"
            await storage.delete(f"folder/{n}")

    await asyncio.gather(*(work(n) for n in range(6)))
    assert await listed(storage) == []


async def test_a_reader_never_sees_the_description_of_another_version(storage: Storage) -> None:
    async def write() -> None:
        for n in range(60):
            await storage.put("a", b"x" * n, content_type=f"text/{n}")

    await storage.put("a", b"", content_type="text/0")
    writing = asyncio.create_task(write())
    while not writing.done():
        info = await storage.head("a")
        assert info.content_type == f"text/{info.size}"
    await writing


async def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as error:
        open_storage(str(tmp_path / "file"))
    assert str(tmp_path) in error.value.full
    assert str(tmp_path) not in error.value.message


async def test_a_read_only_directory_is_an_error(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StorageDenied) as denied:
        await storage.put("a", b"x")
    assert denied.value.code == "storage_denied"


async def test_a_deleted_directory_is_not_reported_as_a_missing_object(storage: Storage, root: Path) -> None:
    """As when a volume is not mounted any more: it may come back."""
    await storage.put("a", b"x")
    os.rename(root, f"{root}-elsewhere")
    for asked in (storage.put("b", b"x"), storage.head("a"), storage.delete("a"), storage.check()):
        with pytest.raises(StorageUnavailable, match="does not exist any more") as failed:
            await asked
        assert str(root) not in failed.value.message
    os.rename(f"{root}-elsewhere", root)
    assert await storage.read("a") == b"x"


async def test_a_sweep_ignores_foreign_files(opened: Callable[..., Storage], root: Path, clock: MovableClock) -> None:
    storage = opened("directory", clock=clock)
    for name in (".DS_Store", "job/notes.txt", "job/x/data/a"):
        path = root / ".holdfast/staging" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    clock.advance(100 * 365 * 86_400)
    assert await storage.stale_staging(60) == []


async def test_unfinished_uploads_of_dead_processes_are_swept(
    opened: Callable[..., Storage], root: Path, clock: MovableClock
) -> None:
    storage = opened("directory", clock=clock)

    async def recorded(key: str) -> bool:
        raise AssertionError(key)

    left = root / ".holdfast/uploads/left"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    os.utime(left, (clock.now().timestamp(),) * 2)
    clock.advance(3600)
    await storage.sweep(3601, recorded=recorded)
    assert left.exists()
    await storage.sweep(3599, recorded=recorded)
    assert not left.exists()
    assert left.parent.exists(), "another process may be about to create a file in it"


def test_only_remote_storage_needs_obstore_and_says_how_to_install_it(tmp_path: Path) -> None:
    script = """
import asyncio, sys
sys.modules["obstore"] = None
from holdfast.errors import Invalid
from holdfast.storage import open_storage

async def main():
    async with open_storage("objects") as storage:
        await storage.put("a", b"hello")
        print(await storage.read("a"))
    for url in ("memory://", "s3://bucket"):
        try:
            open_storage(url)
        except Invalid as error:
            print(error.code, error)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first == "b'hello'"
    assert len(others) == 2
    for line in others:
        assert line.startswith("extra_missing object storage")
        assert line.endswith("pip install 'holdfast[storage]'")


def test_a_directory_is_created_when_it_is_opened(root: Path) -> None:
    assert not root.exists()
    open_storage(str(root))
    assert root.is_dir()
    assert Directory.name == "directory"
