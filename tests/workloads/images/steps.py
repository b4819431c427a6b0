"""The image service on a real server with a real worker, and pictures to give it."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from holdfast.clock import Clock
from holdfast.settings import Settings
from holdfast.worker.processes.process_pool import ProcessPool
from holdfast.workloads.images import ext
from holdfast.workloads.images.objects import MARK
from holdfast.workloads.images.service import app
from tests.server.steps import Served, serving
from tests.worker.in_process import AtWork, until, working

APP = "holdfast.workloads.images:app"
FINAL = ("completed", "failed")
# For tests of what is the same on every database, and takes long.
ON_SQLITE = pytest.mark.parametrize("store_url", [pytest.param("sqlite", marks=pytest.mark.sqlite)], indirect=True)


def picture(width: int = 64, height: int = 48, kind: str = "PNG", mode: str = "RGB", **save: Any) -> bytes:
    """A gradient: no two of different sizes or modes are alike."""
    gradient = Image.linear_gradient("L").resize((width, height))
    image = Image.merge("RGB", (gradient, gradient.rotate(180), gradient.transpose(Image.Transpose.FLIP_LEFT_RIGHT)))
    out = io.BytesIO()
    image.convert(mode).save(out, kind, **save)
    return out.getvalue()


def animation(frames: int, size: tuple[int, int] = (40, 30), kind: str = "GIF") -> bytes:
    each = [Image.new("RGB", size, (7 * n % 256, 90, 200 - n % 200)) for n in range(frames)]
    out = io.BytesIO()
    each[0].save(out, kind, save_all=True, append_images=each[1:], duration=50, loop=0)
    return out.getvalue()


@dataclass
class Service:
    served: Served
    folder: Path

    async def upload(self, data: bytes, **request: Any) -> dict[str, Any]:
        """The answer to an upload that is accepted."""
        answer = await self.served.http.post("/images", content=data, **request)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def refused(self, data: bytes, **request: Any) -> tuple[int, str]:
        answer = await self.served.http.post("/images", content=data, **request)
        return answer.status_code, answer.json().get("code", "")

    async def image(self, image_id: str) -> dict[str, Any]:
        answer = await self.served.http.get(f"/images/{image_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def ended(self, image_id: str, seconds: float = 60) -> dict[str, Any]:
        async def is_final() -> bool:
            return (await self.image(image_id))["status"] in FINAL

        await until(is_final, seconds=seconds)
        return await self.image(image_id)

    async def gone(self, image_id: str) -> bool:
        return (await self.served.http.get(f"/images/{image_id}")).status_code == 404

    async def job(self, job_id: str) -> dict[str, Any]:
        answer = await self.served.http.get(f"/jobs/{job_id}", headers={"Prefer": "wait=20"})
        return dict(answer.json())

    async def made(self, data: bytes, **request: Any) -> dict[str, Any]:
        """The image as it is after an upload was processed."""
        return await self.ended((await self.upload(data, **request))["imageId"])

    def files(self, below: str = "") -> list[str]:
        """The keys of the objects in the directory, without its mark."""
        walked = os.walk(self.folder)  # passes over folders that are deleted meanwhile
        paths = [
            Path(folder, name).relative_to(self.folder).as_posix() for folder, _, names in walked for name in names
        ]
        return sorted(each for each in paths if each.startswith(below) and not each.startswith((".holdfast", MARK)))


@asynccontextmanager
async def images_working(**config: Any) -> AsyncIterator[AtWork]:
    """A worker with child processes, as `holdfast worker` has them."""
    settings = msgspec.to_builtins(app.settings)
    pool = ProcessPool(APP, most=2, clock=Clock(), settings=settings, metrics=app.declarations())
    async with working(app, children=pool, **config) as at_work:
        try:
            yield at_work
        finally:
            await pool.close()


Sets = Callable[..., None]


@pytest.fixture
def images_settings(monkeypatch: pytest.MonkeyPatch) -> Sets:
    """Sets HOLDFAST_IMAGES_* for this process and the children of the worker."""

    def set_(**settings: object) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"HOLDFAST_IMAGES_{name.upper()}", str(value))
        monkeypatch.setattr(ext, "_read_settings", None)

    return set_


@pytest.fixture
async def service(store_url: str, tmp_path: Path, images_settings: Sets) -> AsyncIterator[Service]:
    folder = tmp_path / "objects"
    images_settings(storage_url=str(folder))
    app.settings = Settings(database_url=store_url)
    async with serving(store_url, app=app) as served:
        yield Service(served, folder)
    await app.close()
