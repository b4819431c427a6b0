"""`holdfast` as a person types it, but in this process; and what workers did before it was typed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from holdfast.assembly.engine import open_engine
from holdfast.cli import main
from holdfast.engine import Engine
from holdfast.settings import Settings
from holdfast.store.migrate import migrate

T = TypeVar("T")


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


Holdfast = Callable[..., Answer]
Meanwhile = Callable[[Callable[[Engine], Awaitable[Any]]], Any]


@pytest.fixture
def holdfast(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Holdfast:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", store_url)
    asyncio.run(migrate(store_url))  # commands that only look make no database

    def run(*arguments: str) -> Answer:
        try:
            code = main([*arguments])
        except SystemExit as left:  # argparse leaves by itself
            code = int(left.code or 0)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def meanwhile(store_url: str) -> Meanwhile:
    """Let something happen in the database between two commands."""

    def happen(story: Callable[[Engine], Awaitable[T]]) -> T:
        async def run() -> T:
            engine = await open_engine(Settings(database_url=store_url))
            try:
                return await story(engine)
            finally:
                await engine.close()

        return asyncio.run(run())

    return happen
