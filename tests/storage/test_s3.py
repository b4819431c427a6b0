"""What is special about S3: other answers, outages, multipart uploads, URLs that it signs itself."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiobotocore.session
import httpx2
import pytest

from holdfast.errors import HoldfastError, StorageDenied, StorageError, StorageThrottled, StorageUnavailable
from holdfast.storage import Storage, open_storage
from holdfast.storage.bucket import PART_BYTES
from tests.servers.s3 import BUCKET, S3Server

SECRET = S3Server.credentials["secret_access_key"]
READY_SECONDS = 60.0


@pytest.fixture
def storage(opened: Callable[..., Storage]) -> Storage:
    return opened("s3")


def ask(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """A client that knows nothing but the URL."""
    answer = httpx2.request(method, url, content=body)
    return answer.status_code, answer.content


async def test_a_url_signed_for_get_allows_only_get(storage: Storage) -> None:
    await storage.put("a b/é.txt", b"hello")
    url = await storage.signed_url("GET", "a b/é.txt", 60)
    assert ask(url) == (200, b"hello")
    assert ask(url, "PUT", b"x")[0] == 403
    assert ask(url.replace(".txt", ".tx"))[0] == 403
    assert ask(url.replace("X-Amz-Expires=60", "X-Amz-Expires=600"))[0] == 403
    assert SECRET not in url


async def test_a_url_signed_for_put_allows_put(storage: Storage) -> None:
    url = await storage.signed_url("PUT", "upload", 60)
    assert ask(url, "PUT", b"from outside")[0] == 200
    assert await storage.read("upload") == b"from outside"
    assert ask(url)[0] == 403


async def test_an_upload_that_fails_is_aborted(storage: Storage, s3_server: S3Server) -> None:
    async def broken() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * PART_BYTES
        assert await uploads(s3_server) == 1
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        await storage.put("a", broken())
    assert not await storage.exists("a")
    assert await uploads(s3_server) == 0


async def uploads(server: S3Server) -> int:
    """How many multipart uploads have not ended, by another library's count."""
    keys = {f"aws_{name}": value for name, value in server.credentials.items()}
    session = aiobotocore.session.get_session()
    async with session.create_client("s3", region_name="us-east-1", endpoint_url=server.url, **keys) as client:
        return len((await client.list_multipart_uploads(Bucket=BUCKET)).get("Uploads", []))


@pytest.mark.parametrize(
    ("url", "options", "kind", "code"),
    [
        ("s3://tests?endpoint={url}", {"secret_access_key": "wrong-secret"}, StorageDenied, "storage_denied"),
        ("s3://tests?endpoint={url}", {"access_key_id": "stranger"}, StorageDenied, "storage_denied"),
        ("s3://no-such-bucket?endpoint={url}", {}, StorageError, "storage_error"),
        ("s3://tests?endpoint=http://127.0.0.1:9", {}, StorageUnavailable, "storage_unavailable"),
    ],
    ids=["wrong secret", "unknown key", "no bucket", "no server"],
)
async def test_an_s3_error_has_a_code_and_shows_no_secret(
    s3_server: S3Server, url: str, options: dict[str, str], kind: type[HoldfastError], code: str
) -> None:
    given = {**s3_server.credentials, **options}
    async with open_storage(url.format(url=s3_server.url), request_seconds=5, retries=1, **given) as storage:
        with pytest.raises(kind) as failed:
            await storage.check()
        assert failed.value.code == code
        assert str(failed.value).startswith(url.partition("?")[0])
        assert failed.value.__suppress_context__
        told = f"{failed.value!r} {failed.value} {failed.value.message} {failed.value.full} {storage!r} {storage.url}"
        assert not [secret for secret in given.values() if secret in told.replace("s3://tests", "")]
        assert "127.0.0.1" not in failed.value.message


async def test_deleting_in_a_missing_bucket_is_an_error(s3_server: S3Server) -> None:
    url = f"s3://no-such-bucket?endpoint={s3_server.url}"
    async with open_storage(url, retries=0, **s3_server.credentials) as storage:
        for keys in (["a"], ["a", "b"]):
            with pytest.raises(StorageError, match="no such bucket"):
                await storage.delete(*keys)
        with pytest.raises(StorageError, match="no such bucket"):
            await storage.check()


async def test_working_storage_logs_nothing(storage: Storage) -> None:
    await storage.check()
    await storage.put("a", b"x")
    await storage.check()


async def test_a_silent_server_times_out(s3_server: S3Server) -> None:
    url = f"s3://{BUCKET}?endpoint={s3_server.url}"
    async with open_storage(url, request_seconds=0.5, retries=1, **s3_server.credentials) as storage:
        with s3_server.frozen(), pytest.raises(StorageUnavailable):
            await storage.head("a")


async def test_objects_survive_a_restart_of_the_server(storage: Storage, s3_server: S3Server) -> None:
    await storage.put("a", b"hello", content_type="text/plain")
    s3_server.restart(kill=False)
    assert await read_when_available(storage, "a") == b"hello"


async def read_when_available(storage: Storage, key: str) -> bytes:
    """The server answers with an internal error until its volumes are mounted again."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                return await storage.read(key)
            except StorageUnavailable:
                await asyncio.sleep(0.1)


async def test_credentials_default_to_the_environment(
    s3_url: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.credentials.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    async with open_storage(s3_url) as storage:
        await storage.put("a", b"hello")
        assert await storage.read("a") == b"hello"
    assert ask(f"{s3_server.url}/{storage.url.removeprefix('s3://')}/a")[0] == 403


async def test_the_endpoint_defaults_to_the_environment(
    s3_url: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    async with open_storage(s3_url.partition("?")[0], **s3_server.credentials) as storage:
        await storage.put("a", b"hello")
        assert await storage.read("a") == b"hello"


async def test_missing_credentials_are_not_reported_as_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # in place of the role of a machine
    async with open_storage("s3://bucket?endpoint=http://127.0.0.1:9", request_seconds=5, retries=0) as storage:
        with pytest.raises(StorageDenied, match="no credentials"):
            await storage.check()


async def test_s3_serves_an_object_with_its_headers(storage: Storage) -> None:
    await storage.put("a", b"x", content_type="text/css", headers={"cache-control": "max-age=60"})
    answer = httpx2.get(await storage.signed_url("GET", "a", 60))
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("text/css", "max-age=60")


async def test_two_prefixes_of_a_bucket_are_isolated(s3_server: S3Server, s3_url: str) -> None:
    other_url = s3_url.replace("?", "-other?")
    async with (
        open_storage(s3_url, **s3_server.credentials) as one,
        open_storage(other_url, **s3_server.credentials) as other,
    ):
        await one.put("a", b"one")
        assert not await other.exists("a")
        assert [info.key async for info in other.list()] == []
        assert (one.bucket, one.url) == (BUCKET, s3_url.partition("?")[0])


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", StorageThrottled),
        (429, "TooManyRequests", StorageThrottled),
        (503, "ServiceUnavailable", StorageUnavailable),
        (500, "InternalError", StorageUnavailable),
    ],
)
async def test_a_store_that_asks_for_fewer_requests_is_told_from_one_that_is_away(
    status: int, code: str, kind: type[StorageError]
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = f"<Error><Code>{code}</Code></Error>".encode()
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/xml\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"s3://tests?endpoint=http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_storage(url, retries=0, request_seconds=5, **S3Server.credentials) as storage:
            with pytest.raises(StorageError) as failed:
                await storage.check()
    assert type(failed.value) is kind
