"""Takes the pictures of the gallery in docs/images: `python -m tests.workloads.images.screenshots`."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Browser, Page, expect

from tests.docs.pages import ROOT
from tests.servers.browser import launched, opened
from tests.workloads.images.gallery_page import NARROW, WIDE, Gallery, card, drop, svg, until_ready
from tests.workloads.images.landscapes import SCENES, encoded, landscape

PICTURES = ROOT / "docs" / "images"
NAMES = [*SCENES]


async def main() -> None:
    async with launched() as browser:
        with empty_gallery() as gallery:
            await at_work(browser, gallery, "light", WIDE, NAMES[:6])
            await details(browser, gallery, NAMES[1])
        with empty_gallery() as gallery:
            await at_work(browser, gallery, "narrow", NARROW, NAMES[2:])


@contextmanager
def empty_gallery() -> Iterator[Gallery]:
    with tempfile.TemporaryDirectory() as folder:
        gallery = Gallery(Path(folder))
        with gallery.process() as dev:
            dev.until_it_says("Ctrl-C stops it")
            yield gallery


async def at_work(browser: Browser, gallery: Gallery, name: str, size: Any, scenes: list[str]) -> None:
    """One image is in progress, one waits, one was rejected."""
    async with opened(browser, gallery.page, viewport=size, color_scheme="light", expected=["status of 415"]) as page:
        await drop(page, *[file(scene) for scene in scenes[:-2]])
        await until_ready(*[card(page, scene) for scene in scenes[:-2]])
        await drop(page, svg())
        await expect(card(page, "logo.svg")).to_contain_text("Not uploaded")
        for scene, status in zip(scenes[-2:], ("Processing", "Queued"), strict=True):
            await drop(page, file(scene))
            await expect(card(page, scene)).to_contain_text(status)
        await expect(card(page, scenes[-2])).to_contain_text(re.compile("[3-7] of 9"))
        await save(page, name)


async def details(browser: Browser, gallery: Gallery, scene: str) -> None:
    async with opened(browser, gallery.page, viewport=WIDE, color_scheme="dark") as page:
        await drop(page, file(scene))
        await until_ready(card(page, scene))
        await page.get_by_role("button", name=f"Details of {scene}.jpg").click()
        await expect(page.get_by_role("dialog").locator("img.loaded")).to_be_visible()
        await save(page, "dark")


def file(scene: str) -> Any:
    return {"name": f"{scene}.jpg", "mimeType": "image/jpeg", "buffer": encoded(landscape(scene, 2000, 1500, grain=1))}


async def save(page: Page, name: str) -> None:
    taken = await page.screenshot(animations="disabled")
    with Image.open(io.BytesIO(taken)) as picture:
        picture.convert("RGB").save(PICTURES / f"gallery-{name}.png", optimize=True)


if __name__ == "__main__":
    asyncio.run(main())
