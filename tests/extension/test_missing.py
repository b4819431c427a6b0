"""A server without the extension says which one is missing: in /health, in its metrics, and `doctor` does too."""

import asyncio
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.server import health_monitor
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from tests.engine.steps import ask
from tests.extension import toy
from tests.server.steps import ADMIN, serving
from tests.server.test_health import until


async def test_missing_extensions_are_reported(
    store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(health_monitor, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(health_monitor, "EXTENSIONS_SECONDS", 0.05)
    toy.app.settings = Settings(database_url=store_url)
    await migrate(store_url, toy.app.extensions.values())
    await toy.index.enqueue("hello")
    await toy.app.close()
    async with serving(store_url) as served:

        async def metric() -> str:
            said = (await served.http.get("/metrics", headers=ADMIN)).text
            return "".join(line for line in said.splitlines() if line.startswith("holdfast_extension_missing{"))

        async def seen() -> bool:
            return (await served.http.get("/health")).json().get("missingExtensions") == {"notes": 1}

        await until(seen)
        assert await metric() == 'holdfast_extension_missing{extension="notes"} 1.0'
        await asyncio.to_thread(main, ["doctor", "--database", store_url])
        assert "extension notes\tno live process has extension notes, which 1 job needs" in capsys.readouterr().out
        await ask(
            served.engine,
            "INSERT INTO holdfast_extensions (name, seen_at) VALUES ('notes', {now}) ON CONFLICT (name) DO UPDATE"
            " SET seen_at = {now} RETURNING name",
        )

        async def gone() -> bool:
            return "missingExtensions" not in (await served.http.get("/health")).json()

        await until(gone)
        assert await metric() == 'holdfast_extension_missing{extension="notes"} 0.0'
