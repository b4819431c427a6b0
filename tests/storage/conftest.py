"""Storage of each kind, empty: a directory, memory, and a real S3 store."""

import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.storage import Storage, open_storage
from tests.servers.s3 import BUCKET, S3Server

KINDS = ("directory", "memory", "s3")


@pytest.fixture
def s3_url(s3_server: S3Server) -> str:
    return f"s3://{BUCKET}/{secrets.token_hex(8)}?endpoint={s3_server.url}&region=us-east-1"


@pytest.fixture
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[..., Storage]]:
    """`opened(kind, ...)`: storage that the end of the test closes."""
    made: list[Storage] = []

    def make(kind: str, **options: Any) -> Storage:
        url = {"directory": str(tmp_path / "objects"), "memory": "memory://"}.get(kind)
        if url is None:
            url, options = request.getfixturevalue("s3_url"), S3Server.credentials | options
        made.append(open_storage(url, **options))
        return made[-1]

    yield make
    for storage in made:
        await storage.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def told() -> list[tuple[str, BaseException | None]]:
    return []


@pytest.fixture
def storage(
    kind: str, opened: Callable[..., Storage], clock: MovableClock, told: list[tuple[str, BaseException | None]]
) -> Storage:
    def watch(operation: str, seconds: float, error: BaseException | None) -> None:
        assert seconds >= 0
        told.append((operation, error))

    return opened(kind, clock=clock, watch=watch)
