"""The gallery of examples/images, in a browser: a real `holdfast dev`, real uploads, real variants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise, product
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from tests.servers.browser import opened
from tests.worker.in_process import until
from tests.workloads.images.deployment import ROOT
from tests.workloads.images.gallery_page import (
    EDITOR,
    NARROW,
    SVG,
    VARIANTS,
    VIEWER,
    WIDE,
    Gallery,
    broken,
    card,
    corner_of,
    drop,
    jpeg,
    sign_in,
    svg,
    transparent,
    until_ready,
)
from tests.workloads.images.landscapes import encoded, landscape

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

STEPPING = "tests.workloads.images.stepping_app:app"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    gallery = Gallery(tmp_path_factory.mktemp("gallery"))
    with gallery.process() as dev:
        dev.until_it_says("Ctrl-C stops it")
        yield gallery
        assert dev.end() == 0
        assert "Traceback" not in dev.said


async def test_dropped_files_appear_without_loading_the_page_again(browser: Browser, gallery: Gallery) -> None:
    async with opened(browser, gallery.page, viewport=WIDE, color_scheme="dark") as page:
        await expect(page.get_by_text("No images yet")).to_be_visible()
        await page.evaluate("window.loaded = 'once'")
        both = card(page, "red-mesa.jpg"), card(page, "blue-hour.jpg")
        with gallery.paused():
            await drop(page, jpeg("red-mesa", 4000, 3000), jpeg("blue-hour"))
            await expect(page.get_by_text("No images yet")).to_be_hidden()
            for each in both:
                await expect(each).to_contain_text("Queued")
                await expect(each.locator("canvas")).to_be_visible()
        await until_ready(*both)
        assert await page.evaluate("window.loaded") == "once"
        await expect(page.locator("#count")).to_have_text("2 images")


async def test_finished_variants_are_counted_one_after_the_other(browser: Browser, tmp_path: Path) -> None:
    """The job waits after each report until the page shows it; a report has one variant, or two."""
    steps = tmp_path / "steps"
    steps.mkdir()
    gallery = Gallery(tmp_path, STEPPING, IMAGES_STEPS=str(steps), PYTHONPATH=ROOT)
    with gallery.process() as dev:
        await asyncio.to_thread(dev.until_it_says, "Ctrl-C stops it")
        async with opened(browser, gallery.page) as page:
            await drop(page, jpeg("red-mesa"))
            shown = [0]
            while shown[-1] < VARIANTS:
                shown.append(await next_step(steps, after=shown[-1]))
                await expect(card(page, "red-mesa.jpg")).to_contain_text(f"Processing · {shown[-1]} of {VARIANTS}")
                (steps / f"go-{shown[-1]}").touch()
            await until_ready(card(page, "red-mesa.jpg"))
    assert all(1 <= now - before <= 2 for before, now in pairwise(shown)), shown


async def next_step(steps: Path, after: int) -> int:
    def reached() -> list[int]:
        found = [int(path.name.removeprefix("at-")) for path in steps.glob("at-*")]
        return [count for count in found if count > after]

    await until(reached)
    return min(reached())


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
        await drop(page, svg())
        await expect(card(page, "logo.svg")).to_contain_text("Not uploaded")
        await expect(card(page, "logo.svg")).to_contain_text(detail)
        await page.get_by_role("button", name="Dismiss logo.svg").click()
        await expect(card(page, "logo.svg")).to_have_count(0)


async def test_an_empty_file_is_not_sent(browser: Browser, gallery: Gallery) -> None:
    async with opened(browser, gallery.page) as page:
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.method))
        await drop(page, {"name": "nothing.jpg", "mimeType": "image/jpeg", "buffer": b""})
        await expect(card(page, "nothing.jpg")).to_contain_text("the file is empty")
        assert "POST" not in sent


async def test_what_becomes_of_each_file_is_read_out(browser: Browser, gallery: Gallery) -> None:
    async with opened(browser, gallery.page, expected=["status of 415"]) as page:
        announcer = page.locator("#announcer")
        with gallery.paused():
            await drop(page, jpeg("first-light"), jpeg("salt-desert"))
            await expect(page.get_by_role("listitem").filter(has_text="Queued")).to_have_count(2)
            await drop(page, svg())
            await expect(announcer).to_contain_text("logo.svg was not uploaded: the file is not an image")
            progress = card(page, "logo.svg").locator("progress")
            await expect(progress).to_have_attribute("aria-label", "Upload of logo.svg")
        await until_ready(card(page, "first-light.jpg"), card(page, "salt-desert.jpg"))
        for said in ("logo.svg was not uploaded", "first-light.jpg is ready", "salt-desert.jpg is ready"):
            await expect(announcer).to_contain_text(said)


async def test_nothing_is_seen_through_a_transparent_image(browser: Browser, gallery: Gallery) -> None:
    for scheme in ("light", "dark"):
        async with opened(browser, gallery.page, color_scheme=scheme, reduced_motion="reduce") as page:
            await drop(page, transparent(f"disc-{scheme}"))
            await until_ready(card(page, f"disc-{scheme}.png"))
            small = page.get_by_role("button", name=f"Details of disc-{scheme}.png")
            await expect(small.locator("canvas")).to_be_hidden()
            await small.click()
            large = page.get_by_role("dialog").locator(".stage")
            await expect(large.locator("img.loaded")).to_be_visible()
            await expect(large.locator("canvas")).to_be_hidden()
            grounds = [await corner_of(large)]
            await page.keyboard.press("Escape")
            grounds.append(await corner_of(small))
            for ground in grounds:
                assert max(ground) - min(ground) < 20, f"{ground} is not neutral"


async def test_a_failed_image_takes_no_more_room_and_offers_what_can_help(browser: Browser, gallery: Gallery) -> None:
    still = {"viewport": WIDE, "reduced_motion": "reduce"}
    async with opened(browser, gallery.page, expected=["status of 415"], **still) as page:
        failed, rejected = card(page, "north-shore.jpg"), card(page, "logo.svg")
        with gallery.paused():
            await drop(page, broken("north-shore"))
            await expect(failed).to_contain_text("Queued")
            await drop(page, svg())
            await expect(rejected).to_contain_text("Not uploaded")
            before = await failed.bounding_box()
        await expect(failed).to_contain_text("Failed")
        await expect(failed).to_contain_text("cannot be decoded")
        assert await failed.bounding_box() == before
        for each in (failed, rejected):
            await expect(each.locator(".fault svg")).to_be_visible()
        await expect(failed.get_by_role("button", name="Reprocess")).to_be_hidden()
        await failed.get_by_role("button", name="Details").click()
        details = page.get_by_role("dialog")
        await expect(details.locator(".fault")).to_contain_text("cannot be decoded")
        await expect(details.get_by_role("button", name="Delete")).to_be_visible()
        for absent in (".stage", "table", "[data-action=reprocess]"):
            await expect(details.locator(absent)).to_be_hidden()


async def test_the_order_and_the_names_stay_in_the_browser_that_uploaded(browser: Browser, gallery: Gallery) -> None:
    async with opened(browser, gallery.page) as page:
        with gallery.paused():
            files = [jpeg("red-mesa", 40 + number, 30) for number in range(9)]
            for number, file in enumerate(files):
                file["name"] = f"batch-{number}.jpg"
            await drop(page, *files)
            batch = page.locator(".name").filter(has_text="batch-")
            await expect(page.get_by_role("listitem").filter(has_text="Queued")).to_have_count(9)
            before = await batch.all_text_contents()
            await page.reload()
            await expect(batch).to_have_count(9)
            assert await batch.all_text_contents() == before
            await expect(batch.first).to_have_attribute("title", re.compile("Only this browser knows the name"))


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


async def test_a_server_with_keys_asks_for_one_and_says_what_it_lacks(browser: Browser, tmp_path: Path) -> None:
    gallery = Gallery(tmp_path)
    other, viewer = gallery.key("jobs:read"), gallery.key(VIEWER)
    refused = ["status of 401", "status of 403"]
    async with asked_for_a_key(browser, gallery, refused) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.clock.fast_forward("05:00")
        await expect(page.get_by_text("Signed out", exact=True)).to_be_visible()
        assert asked == [], "it goes on asking while it is signed out"
        await expect(page.locator("#notices p")).to_have_count(0)
        await sign_in(page, "a typing error")
        await expect(page.get_by_text("This key is not valid")).to_be_visible()
        await sign_in(page, other)
        await expect(page.get_by_text("this needs the scope images:read")).to_be_visible()
        await sign_in(page, viewer)
        await expect(page.get_by_text("No images yet")).to_be_visible()
        await drop(page, jpeg("blue-hour"))
        await expect(card(page, "blue-hour.jpg")).to_contain_text("this needs the scope images:write")


async def test_who_has_signed_in_stays_so_until_the_end_of_the_session(browser: Browser, tmp_path: Path) -> None:
    gallery = Gallery(tmp_path)
    key = gallery.key(EDITOR)
    async with asked_for_a_key(browser, gallery, ["status of 401"]) as page:
        await sign_in(page, key)
        await expect(page.get_by_text("Live", exact=True)).to_be_visible()
        await drop(page, jpeg("blue-hour"))
        await until_ready(card(page, "blue-hour.jpg"))
        await page.reload()
        await until_ready(card(page, "blue-hour.jpg"))
        await page.get_by_role("button", name="Delete blue-hour.jpg").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No images yet")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await expect(page.get_by_role("button", name="Add images")).to_be_hidden()
        await sign_in(page, key)
        await expect(page.get_by_text("Live", exact=True)).to_be_visible()
        gallery.revoke(key)
        await expect(page.get_by_text("The session is over")).to_be_visible()


@asynccontextmanager
async def asked_for_a_key(browser: Browser, gallery: Gallery, expected: list[str]) -> AsyncIterator[Page]:
    """The page of a server that has keys. Its clock can be advanced."""
    with gallery.process() as dev:
        await asyncio.to_thread(dev.until_it_says, "Ctrl-C stops it")
        async with opened(browser, gallery.page, expected=[*expected, "net::ERR_"]) as page:
            await page.clock.install()
            await page.reload()
            await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            yield page
