"""Takes the pictures of the playground in docs/images: `python -m tests.workloads.generation.screenshots`."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, Page, expect

from tests.docs.pages import ROOT
from tests.servers.browser import launched, opened
from tests.workloads.generation.playground_page import (
    NARROW,
    OBEDIENT,
    Playground,
    generate,
    image,
    request,
    until_shown,
)

PICTURES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 860}
LANDSCAPE, WIDE = "1216x832", "1536x864"
WORKING = "snowy mountains at dawn"


async def main() -> None:
    async with launched() as browser, playground() as shown:
        async with opened(browser, shown.page, viewport=SIZE, color_scheme="light") as page:
            await at_work(page, shown)
            await save(page, "generation-playground")
            await finish(page, shown)
        await details(browser, shown)
        async with opened(browser, shown.page, viewport=NARROW, color_scheme="light") as page:
            await generate(page, "a sailing boat at sunset", 2, WIDE, "watercolor")
            await until_shown(request(page, "a sailing boat at sunset").first, 2)
            await page.evaluate("scrollTo(0, document.querySelector('.tabs').offsetTop - 70)")
            await save(page, "generation-playground-narrow")


@asynccontextmanager
async def playground() -> AsyncIterator[Playground]:
    with tempfile.TemporaryDirectory() as folder:
        playground = Playground(Path(folder), OBEDIENT, GENERATION_STEPWISE="snowy")
        async with playground.started():
            yield playground


async def at_work(page: Page, shown: Playground) -> None:
    """One request runs, one waits, one is finished."""
    await generate(page, "a harbor at night", 4, LANDSCAPE)
    await until_shown(request(page, "a harbor at night"), 4)
    await generate(page, WORKING, 4, LANDSCAPE)
    await expect(request(page, WORKING)).to_contain_text("Running")
    async with shown.paused():
        await generate(page, "a neon city in the rain", 2, WIDE, "neon")
        for number in (1, 2):
            (shown.steps / str(number)).touch()
        await expect(request(page, WORKING)).to_contain_text("2 of 4 images")
        await expect(request(page, "a neon city")).to_contain_text("next in line")


async def finish(page: Page, shown: Playground) -> None:
    for number in (3, 4):
        (shown.steps / str(number)).touch()
    await until_shown(request(page, WORKING), 4)
    await until_shown(request(page, "a neon city"), 2)


async def details(browser: Browser, shown: Playground) -> None:
    async with opened(browser, f"{shown.page}#library", viewport=SIZE, color_scheme="dark") as page:
        await image(page, WORKING).first.get_by_role("button", name="Details").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.locator("img.loaded")).to_be_visible()
        await dialog.get_by_label("Tags", exact=True).fill("winter, for the poster")
        await page.keyboard.press("Enter")
        await expect(dialog.locator(".tags li")).to_have_count(2)
        await save(page, "generation-playground-dark")


async def save(page: Page, name: str) -> None:
    await page.mouse.move(0, 0)
    await page.wait_for_timeout(600)  # pictures fade in
    taken = await page.screenshot(animations="disabled", caret="hide")
    with Image.open(io.BytesIO(taken)) as picture:
        picture.convert("RGB").save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    asyncio.run(main())
