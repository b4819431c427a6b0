"""The gallery of examples/images, in a browser: a real `holdfast dev`, real uploads, real variants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, expect

from tests.servers.browser import opened
from tests.workloads.images.gallery_page import NARROW, SVG, WIDE, Gallery, card, drop, jpeg, until_ready
from tests.workloads.images.landscapes import encoded, landscape

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

# Each text that the status of a card has had, in order.
REMEMBER = """(card) => {
  window.said = [];
  const status = () => card.querySelector("[data-part=status]").textContent;
  new MutationObserver(() => { if (window.said.at(-1) !== status()) window.said.push(status()); })
    .observe(card, { subtree: true, childList: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    gallery = Gallery(tmp_path_factory.mktemp("gallery"))
    with gallery.process() as dev:
        dev.until_it_says("Ctrl-C stops it")
        yield gallery
        assert dev.end() == 0
        assert "Traceback" not in dev.said


async def test_variants_of_dropped_files_appear_one_after_the_other(browser: Browser, gallery: Gallery) -> None:
    async with opened(browser, gallery.page, viewport=WIDE, color_scheme="dark") as page:
        await expect(page.get_by_text("No images yet")).to_be_visible()
        await page.evaluate("window.loaded = 'once'")
        first, second = card(page, "red-mesa.jpg"), card(page, "blue-hour.jpg")
        with gallery.paused():
            await drop(page, jpeg("red-mesa", 2000, 1500), jpeg("blue-hour"))
            await expect(page.get_by_text("No images yet")).to_be_hidden()
            for each in (first, second):
                await expect(each).to_contain_text("Queued")
                await expect(each.locator("canvas")).to_be_visible()
            await first.evaluate(REMEMBER)
        await until_ready(first, second)
        said = await page.evaluate("window.said")
        counted = [int(found[1]) for text in said if (found := re.match(r"Processing · (\d) of 9", text))]
        assert counted == sorted({*counted}), said
        assert len(counted) > 1, said
        assert await page.evaluate("window.loaded") == "once"
        await expect(page.locator("#count")).to_have_text("2 images")


async def test_a_chosen_file_is_shown_with_all_its_variants(browser: Browser, gallery: Gallery) -> None:
    async with opened(browser, gallery.page, viewport=NARROW, color_scheme="light") as page:
        async with page.expect_file_chooser() as chooser:
            await page.get_by_role("button", name="Add images").click()
        await (await chooser.value).set_files([jpeg("old-forest")])
        await until_ready(card(page, "old-forest.jpg"))
        await page.get_by_role("button", name="Details of old-forest.jpg").press("Enter")
        details = page.get_by_role("dialog")
        await expect(details.locator("tbody tr")).to_have_count(9)
        await expect(details).to_contain_text(re.compile("800 . 600 · JPEG"))
        link = await details.get_by_role("link", name="w320.avif").get_attribute("href")
        assert httpx2.get(f"{gallery.url}{link}").headers["content-type"] == "image/avif"
        await page.keyboard.press("Escape")
        await expect(details).to_be_hidden()
        await expect(page.get_by_role("button", name="Details of old-forest.jpg")).to_be_focused()


async def test_the_page_fits_each_screen_and_color_scheme(browser: Browser, gallery: Gallery) -> None:
    for size, scheme in product((WIDE, NARROW), ("light", "dark")):
        async with opened(browser, gallery.page, viewport=size, color_scheme=scheme) as page:
            await expect(page.get_by_text("Live", exact=True)).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it has to be scrolled"
            [color] = re.findall(r"rgb\((\d+)", await page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert (int(color) < 128) == (scheme == "dark")


async def test_the_reason_why_a_file_is_rejected_is_shown(browser: Browser, gallery: Gallery) -> None:
    detail = gallery.upload(SVG).json()["detail"]
    async with opened(browser, gallery.page, expected=["status of 415"], color_scheme="light") as page:
        await drop(page, {"name": "logo.svg", "mimeType": "image/svg+xml", "buffer": SVG})
        await expect(card(page, "logo.svg")).to_contain_text("Not uploaded")
        await expect(card(page, "logo.svg")).to_contain_text(detail)
        await page.get_by_role("button", name="Dismiss logo.svg").click()
        await expect(card(page, "logo.svg")).to_have_count(0)


async def test_what_happens_in_one_window_is_seen_in_another(browser: Browser, gallery: Gallery) -> None:
    async with (
        opened(browser, gallery.page, viewport=NARROW, color_scheme="dark") as other,
        opened(browser, gallery.page, color_scheme="light") as page,
    ):
        await expect(other.get_by_text("Live", exact=True)).to_be_visible()
        before = await other.get_by_role("listitem").count()
        await drop(page, jpeg("spring-haze"))
        await until_ready(card(page, "spring-haze.jpg"))
        await expect(other.get_by_role("listitem")).to_have_count(before + 1)
        await page.get_by_role("button", name="Delete spring-haze.jpg").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(card(page, "spring-haze.jpg")).to_have_count(0)
        await expect(other.get_by_role("listitem")).to_have_count(before)


async def test_a_canceled_image_can_be_processed_again(browser: Browser, gallery: Gallery) -> None:
    async with opened(browser, gallery.page) as page:
        canceled = card(page, "north-shore.jpg")
        with gallery.paused():
            await drop(page, jpeg("north-shore"))
            await expect(canceled).to_contain_text("Queued")
            async with page.expect_response("**/cancel"):
                await canceled.get_by_role("button", name="Cancel").click()
        await expect(canceled).to_contain_text("Canceled")
        await canceled.get_by_role("button", name="Reprocess").click()
        await until_ready(canceled)


async def test_the_page_reconnects_to_a_server_that_was_restarted(browser: Browser, tmp_path: Path) -> None:
    gallery = Gallery(tmp_path)
    with gallery.process() as first:
        first.until_it_says("Ctrl-C stops it")
        async with opened(browser, gallery.page, expected=["net::ERR_"]) as page:
            await expect(page.get_by_text("Live", exact=True)).to_be_visible()
            await asyncio.to_thread(first.end)
            await expect(page.get_by_text("Reconnecting")).to_be_visible()
            with gallery.process() as second:
                await asyncio.to_thread(second.until_it_says, "Ctrl-C stops it")
                gallery.upload(encoded(landscape("salt-desert", 400, 300)))
                await until_ready(page.get_by_role("listitem"))
                await expect(page.get_by_text("Live", exact=True)).to_be_visible()
