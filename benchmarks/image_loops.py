"""Photographs, and bare loops over them in as many processes as the image service has: what it is measured against."""

from __future__ import annotations

import asyncio
import hashlib
import io
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from holdfast.workloads.images.encode import _OPTIONS
from holdfast.workloads.images.picture import Picture
from holdfast.workloads.images.settings import Settings
from holdfast.workloads.images.variants import QUALITY, Variant

PROCESSES = 2
LIMITS = Settings().limits
NINE = Settings().default_variants()  # 320, 800 and 1600 pixels wide, as JPEG, WebP and AVIF
THREE = [variant for variant in NINE if variant.format == "jpeg"]

Work = Callable[[Path, Path], None]  # on a photograph; into a folder


def photograph(width: int, height: int) -> Image.Image:
    """Light, structures of all sizes and the noise of a sensor: it compresses like a photograph."""
    light = Image.linear_gradient("L").resize((width, height))
    for cell in (256, 64, 16, 4):
        light = Image.blend(light, _noise(width, height, cell, 80), 0.35)
    light = Image.blend(light, _noise(width, height, 1, 60), 0.06)
    return Image.merge("YCbCr", (light, _noise(width, height, 200, 30), _noise(width, height, 300, 30))).convert("RGB")


def _noise(width: int, height: int, cell: int, sigma: int) -> Image.Image:
    cells = Image.effect_noise((width // cell + 2, height // cell + 2), sigma)
    return cells.resize((width, height), Image.Resampling.BICUBIC)


def jpegs(folder: Path, count: int, size: tuple[int, int], quality: int) -> list[Path]:
    paths = [folder / f"{size[0]}x{size[1]}-{number}.jpg" for number in range(count)]
    for path in paths:
        photograph(*size).save(path, quality=quality)
    return paths


def bitmap(size_bytes: int) -> bytearray:
    """A valid BMP of about this size."""
    width = 4000
    file = io.BytesIO()
    photograph(width, max(1, size_bytes // (3 * width))).save(file, "BMP")
    return bytearray(file.getvalue())


def thumbnails(path: Path, folder: Path) -> None:
    """The default variants with Pillow alone."""
    widths, formats = sorted({variant.width or 0 for variant in NINE}), [*dict.fromkeys(each.format for each in NINE)]
    with Image.open(path) as file:
        file.draft("RGB", (widths[-1], widths[-1]))
        image = ImageOps.exif_transpose(file).convert("RGB")
    for width in widths:
        small = image.copy()
        small.thumbnail((width, image.height), Image.Resampling.LANCZOS, reducing_gap=3)
        for name in formats:
            small.save(folder / f"w{width}.{name}", name, quality=QUALITY[name], **_OPTIONS[name])


def pictures(path: Path, folder: Path, *, variants: Sequence[Variant], synced: bool) -> None:
    """All that the service does for an image, but for the platform. `synced`: each file is on disk in the end."""
    picture = Picture.open(path.read_bytes(), LIMITS, largest=variants)
    for variant in variants:
        data = picture.render(variant).data
        hashlib.sha256(data).digest()
        with (folder / variant.name).open("wb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
    picture.fingerprint()


class Loop:
    """Processes that have nothing to do in between."""

    def __init__(self, pool: Any, folder: Path) -> None:
        self._pool, self._folder = pool, folder

    async def over(self, paths: Sequence[Path], work: Work) -> int:
        """The number of photographs."""
        return len(await asyncio.to_thread(self._pool.map, partial(_into, self._folder, work), [*paths], 1))


def _into(folder: Path, work: Work, path: Path) -> None:
    own = folder / str(os.getpid())
    own.mkdir(exist_ok=True)
    work(path, own)


@contextmanager
def loop(folder: Path) -> Iterator[Loop]:
    folder.mkdir()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        yield Loop(pool, folder)
