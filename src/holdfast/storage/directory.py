"""The directory backend: objects are plain files below one directory.

Folders are opened one below the other, and symbolic links are refused: no key leads out of the directory, even if
another process changes it at the same time. A file gets its final name when it is complete and synced. A content type
that the suffix of the key does not imply, metadata and headers are in a description file named after key and etag, so a
reader never sees that of another version.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.clock import from_micros
from holdfast.errors import (
    HoldfastError,
    Invalid,
    ObjectChanged,
    ObjectNotFound,
    StorageDenied,
    StorageError,
    StorageUnavailable,
)
from holdfast.ids import Ids
from holdfast.storage.backend import Description, ObjectInfo
from holdfast.storage.checks import RESERVED, invalid_key
from holdfast.storage.content_types import implied_type

UPLOADS, DESCRIPTIONS = f"{RESERVED}/uploads", f"{RESERVED}/descriptions"
BATCH = 1000
COPY_BYTES = 1 << 20
WRITE_BYTES = 1 << 16  # chunks below this size are written together
TRIES = 10  # while other processes delete the target folder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.EMLINK)  # no hard links on this file system, or too many
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


class Directory:
    name = "directory"
    puts_at_once = 256  # measured: 0.3 MiB each

    def __init__(self, root: Path, ids: Ids) -> None:
        self._root, self._ids = root.absolute(), ids
        self.url = self._root.as_uri()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._failure(error) from None

    def head(self, key: str) -> ObjectInfo:
        with self._translated_errors(key), self._folder(key) as (folder, name):
            found = _stat(name, folder, key)
            description = self._described(key, found)
            for _ in range(TRIES):
                if description is not None or _etag(now := _stat(name, folder, key)) == _etag(found):
                    break
                found, description = now, self._described(key, now)  # it was replaced, with its description
            return _info(key, found, description or Description(implied_type(key)))

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        with self._translated_errors(key), self._opened(key) as file:
            if _etag(os.fstat(file)) != etag:
                raise ObjectChanged(f"object {key!r} was replaced while it was read; read it again", key=key)
            parts = []
            while start < end and (part := os.pread(file, end - start, start)):
                parts.append(part)
                start += len(part)
            return b"".join(parts)

    def put(self, key: str, chunks: Iterable[bytes], description: Description, size: int) -> str:
        with self._translated_errors(key), self._upload() as (folder, name):
            found = _write(folder, name, chunks)
            self._publish(key, found, folder, name, description)
            return _etag(found)

    def copy(self, source: str, target: str) -> None:
        info = self.head(source)
        with self._translated_errors(source):
            try:
                self._link(source, target, info)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self.put(target, self._chunks(info), info.description, info.size)

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            with self._translated_errors(key), contextlib.suppress(FileNotFoundError, ObjectNotFound):
                with self._folder(key) as (folder, name):
                    found = _stat(name, folder, key)
                    os.unlink(name, dir_fd=folder)
                self._forget(key, found)
                if not key.startswith(f"{UPLOADS}/"):  # where other processes are about to create files
                    self._delete_empty_folders(key)

    def list(self, prefix: str) -> Iterator[list[ObjectInfo]]:
        batch = []
        for info in self._walk(prefix):
            batch.append(info)
            if len(batch) == BATCH:
                yield batch
                batch = []
        yield batch

    def sign(self, method: str, key: str, seconds: int) -> str | None:
        return None

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        with (
            self._translated_errors(prefix),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            contextlib.ExitStack() as stack,
        ):
            top, _ = stack.enter_context(self._folder(f"{prefix}/_" if prefix else "_"))
            for path, folders, names, folder in os.fwalk(".", dir_fd=top, follow_symlinks=False):
                if not prefix and path == "." and RESERVED in folders:
                    folders.remove(RESERVED)
                place = "/".join(part for part in (prefix, path[2:]) if part)
                for name in names:
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):
                            yield _info(f"{place}/{name}" if place else name, found)

    @contextlib.contextmanager
    def _folder(self, key: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """An open descriptor of the object's folder, and the file name."""
        *folders, name = key.split("/")
        place = self._open_root()
        try:
            for folder in folders:
                below = _made(folder, place, key) if make else _open(folder, _FOLDER, place, key)
                os.close(place)
                place = below
            yield place, name
        finally:
            os.close(place)

    def _open_root(self) -> int:
        try:
            return os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:  # it existed when the storage was opened
            message = "object storage does not exist any more"
            raise StorageUnavailable(message, full=f"{self.url}: {message} ({error.strerror})") from None

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        with self._folder(key) as (folder, name):
            file = _open(name, _READ, folder, key)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _missing(key)
            yield file
        finally:
            os.close(file)

    @contextlib.contextmanager
    def _upload(self) -> Iterator[tuple[int, str]]:
        """A folder and a name for an unfinished file, which is renamed or deleted at the end."""
        with self._folder(f"{UPLOADS}/{self._ids.token()}", make=True) as (folder, name):
            try:
                yield folder, name
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def _publish(self, key: str, found: os.stat_result, uploads: int, name: str, description: Description) -> None:
        """Write the description, then rename the file to its final name."""
        if description != Description(implied_type(key)):
            self._describe(key, found, description)
        try:
            before = self._rename(key, uploads, name)
        except BaseException:
            self._forget(key, found)
            raise
        if before is not None and _etag(before) != _etag(found):
            self._forget(key, before)

    def _rename(self, key: str, uploads: int, name: str) -> os.stat_result | None:
        """Returns the version that was replaced."""
        for _ in range(TRIES):
            with contextlib.suppress(FileNotFoundError):  # the empty folder was deleted meanwhile
                return self._rename_once(key, uploads, name)
        return self._rename_once(key, uploads, name)

    def _rename_once(self, key: str, uploads: int, name: str) -> os.stat_result | None:
        before = None
        try:
            with self._folder(key, make=True) as (folder, target):
                with contextlib.suppress(FileNotFoundError, HoldfastError):
                    before = _stat(target, folder, key)
                os.replace(name, target, src_dir_fd=uploads, dst_dir_fd=folder)
                os.fsync(folder)
                return before
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            fault = "in a directory, a key cannot also be a folder of other keys"
            raise invalid_key(key, fault) from None

    def _link(self, source: str, target: str, info: ObjectInfo) -> None:
        """Files are replaced, never changed, so a hard link is as good as a copy."""
        with self._upload() as (uploads, upload):
            with self._folder(source) as (folder, name):
                os.link(name, upload, src_dir_fd=folder, dst_dir_fd=uploads, follow_symlinks=False)
            found = os.stat(upload, dir_fd=uploads, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                raise _missing(source)
            self._publish(target, found, uploads, upload, info.description)

    def _chunks(self, info: ObjectInfo) -> Iterator[bytes]:
        for start in range(0, info.size, COPY_BYTES):
            yield self.read(info.key, start, min(start + COPY_BYTES, info.size), info.etag)

    def _described(self, key: str, found: os.stat_result) -> Description | None:
        with contextlib.suppress(FileNotFoundError, ObjectNotFound), self._opened(_description(key, found)) as file:
            return Description(**json.loads(os.pread(file, 1 << 20, 0)))
        return None

    def _describe(self, key: str, found: os.stat_result, description: Description) -> None:
        with self._folder(_description(key, found), make=True) as (folder, name), self._upload() as (uploads, upload):
            _write(uploads, upload, [json.dumps(description._asdict()).encode()])
            os.replace(upload, name, src_dir_fd=uploads, dst_dir_fd=folder)
            os.fsync(folder)

    def _forget(self, key: str, found: os.stat_result) -> None:
        with contextlib.suppress(FileNotFoundError), self._folder(_description(key, found)) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def _delete_empty_folders(self, key: str) -> None:
        folders = key.split("/")[:-1]
        with contextlib.suppress(OSError):  # not empty, or deleted already
            for depth in range(len(folders), 0, -1):
                with self._folder("/".join(folders[:depth])) as (parent, name):
                    os.rmdir(name, dir_fd=parent)

    @contextlib.contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        """Maps OSError to storage errors."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise _missing(key) from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise invalid_key(key, "one of its segments is too long for the file system (255 bytes)") from None
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> StorageError:
        kind, message = StorageError, "object storage failed"
        if error.errno in _DENIED:
            kind, message = StorageDenied, "object storage denied the request"
        elif error.errno in _FULL:
            kind, message = StorageUnavailable, "object storage is full"
        return kind(message, full=f"{self.url}: {message} ({os.strerror(error.errno or 0)})")


def _open(name: str, flags: int, folder: int, key: str) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(name, folder):
            raise _linked(name, key) from None
        raise


def _made(name: str, folder: int, key: str) -> int:
    """Opens a folder, which is created if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return _open(name, _FOLDER, folder, key)
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
        os.fsync(folder)
    return _open(name, _FOLDER, folder, key)


def _stat(name: str, folder: int, key: str) -> os.stat_result:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise _linked(name, key)
    if not stat.S_ISREG(found.st_mode):
        raise _missing(key)
    return found


def _linked(name: str, key: str) -> Invalid:
    return invalid_key(key, f"{name!r} is a symbolic link, and links are not followed")


def _is_link(name: str, folder: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _write(folder: int, name: str, chunks: Iterable[bytes]) -> os.stat_result:
    """Write and sync a new file."""
    with os.fdopen(os.open(name, _NEW, 0o666, dir_fd=folder), "wb", WRITE_BYTES) as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno())


def _missing(key: str) -> ObjectNotFound:
    return ObjectNotFound(f"object {key!r} does not exist", key=key)


def _etag(found: os.stat_result) -> str:
    return f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'


def _description(key: str, found: os.stat_result) -> str:
    return f"{DESCRIPTIONS}/{hashlib.sha256(key.encode()).hexdigest()[:32]}-{_etag(found)[1:-1]}"


def _info(key: str, found: os.stat_result, description: Description | tuple[()] = ()) -> ObjectInfo:
    modified = from_micros(found.st_mtime_ns // 1000)
    return ObjectInfo(key, found.st_size, _etag(found), modified, *description)
