"""The playground of examples/generation, in a browser: a real `holdfast dev`, real requests, real images."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.servers.browser import opened
from tests.worker.in_process import until
from tests.workloads.generation.playground_page import (
    NARROW,
    OBEDIENT,
    PHONE,
    READER,
    USER,
    WIDE,
    Playground,
    generate,
    image,
    look_again,
    request,
    sign_in,
    until_shown,
    with_small_pages,
)

SUMS = ("balance", "reserved", "available")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def playground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Playground]:
    playground = Playground(tmp_path_factory.mktemp("playground"), OBEDIENT)
    async with playground.started() as dev:
        yield playground
        assert dev.end() == 0
        assert "Traceback" not in dev.said


async def test_a_request_is_followed_live_until_its_images_are_shown(browser: Browser, playground: Playground) -> None:
    async with opened(browser, playground.page, viewport=WIDE) as page:
        await expect(page.get_by_text("Nothing generated yet")).to_be_visible()
        await page.evaluate("window.loaded = 'once'")
        await page.get_by_role("button", name="a harbor at night").click()
        prompt = page.get_by_label("Prompt", exact=True)
        await expect(prompt).to_have_value("a harbor at night")
        await prompt.fill("a stepwise lighthouse")
        await page.get_by_role("radio", name="2").check()
        await expect(page.get_by_role("button", name="Generate 2 credits")).to_be_visible()
        await prompt.press("Control+Enter")
        shown = request(page, "a stepwise lighthouse")
        await expect(shown).to_contain_text("Running · 0 of 2 images")
        await expect(page.get_by_role("button", name="98 credits 2 reserved")).to_be_visible()
        (playground.steps / "2").touch()
        await expect(shown).to_contain_text("Running · 1 of 2 images")
        await expect(shown.locator(".finished")).to_have_count(1)
        before = await shown.bounding_box()
        (playground.steps / "1").touch()
        await until_shown(shown, 2)
        assert await shown.bounding_box() == before, "the images moved the page"
        await expect(shown).to_contain_text("2 credits paid")
        await expect(page.get_by_role("button", name="98 credits", exact=True)).to_be_visible()
        await expect(page.locator("#announcer")).to_contain_text("2 images ready: a stepwise lighthouse")
        assert await page.evaluate("window.loaded") == "once"


async def test_queued_requests_show_their_position_and_can_be_canceled(
    browser: Browser, playground: Playground
) -> None:
    await asyncio.to_thread(playground.make_some)
    async with opened(browser, playground.page) as page:
        first, second = request(page, "the first in the queue"), request(page, "the second in the queue")
        async with playground.paused():
            await generate(page, "the first in the queue", 3)
            await expect(first).to_contain_text("Queued · next in line")
            await generate(page, "the second in the queue")
            await expect(second).to_contain_text("Queued · position 2")
            await expect(second).not_to_contain_text("about")
            await expect(page.locator("#credits")).to_contain_text("4 reserved")
            await first.get_by_role("button", name="Cancel").click()
        await expect(first).to_contain_text("Canceled")
        await expect(first.get_by_role("button", name="Use the settings")).to_be_focused()
        await expect(first).to_contain_text("3 credits released")
        await expect(first.get_by_role("button", name="Cancel")).to_be_hidden()
        await until_shown(second)
        await expect(page.locator("#credits small")).to_be_hidden()
        async with playground.one_at_a_time():
            await generate(page, "a stepwise staircase", 3)
            await expect(request(page, "a stepwise staircase")).to_contain_text("Running")
            await generate(page, "the third in the queue")
            await expect(request(page, "the third in the queue")).to_contain_text("Queued · next in line · about")
            for number in range(1, 4):
                (playground.steps / str(number)).touch()
            await until_shown(request(page, "the third in the queue"))


async def test_a_double_click_makes_one_generation_and_a_later_click_another(
    browser: Browser, playground: Playground
) -> None:
    async with opened(browser, playground.page) as page:
        await page.clock.install()
        await page.get_by_label("Prompt", exact=True).fill("an old forest")
        await page.get_by_role("button", name="Generate").dblclick()
        await until_shown(request(page, "an old forest"))
        await page.clock.fast_forward(5000)
        await page.get_by_role("button", name="Generate").click()
        await expect(request(page, "an old forest")).to_have_count(2)
        await until_shown(request(page, "an old forest").first)
    made = [each["prompt"] for each in playground.read("/generations")["generations"]]
    assert made.count("an old forest") == 2


async def test_what_is_wrong_is_said_at_its_field(browser: Browser, playground: Playground) -> None:
    async with opened(browser, playground.page, expected=["status of 422"]) as page:
        await page.get_by_role("button", name="Generate").click()
        prompt = page.get_by_label("Prompt", exact=True)
        await expect(prompt).to_be_focused()
        await expect(prompt).to_have_accessible_description("Say what the image should show.")
        await prompt.fill("a forbidden-test-word")
        await expect(page.locator("#prompt-fault")).to_be_hidden()
        await page.get_by_role("button", name="Generate").click()
        await expect(prompt).to_have_accessible_description("This prompt is not allowed.")
        await expect(page.locator("#refusal")).to_contain_text("Nothing was reserved")
        await prompt.fill("a mill")
        await page.get_by_text("More options").click()
        await page.get_by_label("Seed").fill("-1")
        await page.get_by_role("radio", name="Custom").check()
        await page.get_by_label("Width").fill("63")
        await page.get_by_role("button", name="Generate").click()
        await expect(page.get_by_label("Width")).to_be_focused()
        await expect(page.get_by_label("Width")).to_have_accessible_description(re.compile("64 to 2048"))
        await expect(page.get_by_label("Seed")).to_have_accessible_description(re.compile("0 to 4294967295"))
        await page.get_by_role("button", name="Random").click()
        await expect(page.locator("#seed-fault")).to_be_hidden()
    assert "a mill" not in str(playground.read("/generations"))


async def test_all_texts_that_may_be_the_reason_of_a_refusal_are_named(
    browser: Browser, playground: Playground
) -> None:
    async with opened(browser, playground.page, expected=["status of 422"]) as page:
        await generate(page, "a mill", style="forbidden-test-word")
        prompt, style = page.locator("#prompt"), page.locator("#style")
        for field in (prompt, style):
            await expect(field).to_have_accessible_description("The prompt or style is not allowed.")
            await expect(field).to_have_attribute("aria-invalid", "true")
        await expect(page.locator("#refusal")).to_contain_text("Change the prompt or style and try again.")
        await page.get_by_role("button", name="sketch").click()
        for field in (prompt, style):
            await expect(field).not_to_have_attribute("aria-invalid", "true")
        await expect(page.locator("#refusal")).to_be_hidden()
        await generate(page, "a forbidden-test-word")
        await expect(prompt).to_have_accessible_description("This prompt is not allowed.")
        await expect(style).not_to_have_attribute("aria-invalid", "true")


async def test_a_text_that_is_too_long_says_how_long_it_is(browser: Browser, playground: Playground) -> None:
    async with opened(browser, playground.page) as page:
        prompt = page.get_by_label("Prompt", exact=True)
        await prompt.fill("\N{DROMEDARY CAMEL}" * 4001)
        await page.get_by_role("button", name="Generate").click()
        await expect(prompt).to_have_accessible_description("1 to 4000 characters. These are 4001.")


async def test_the_options_are_shown_whole(browser: Browser, playground: Playground) -> None:
    for height in (860, 640):
        async with opened(browser, playground.page, viewport={"width": 1280, "height": height}) as page:
            await page.get_by_text("More options").click()
            await expect(page.get_by_label("Seed")).to_be_in_viewport(ratio=1)
            seed, send = await page.get_by_label("Seed").bounding_box(), await page.locator(".send").bounding_box()
            assert seed is not None
            assert send is not None
            assert seed["y"] + seed["height"] < send["y"]


async def test_credits_that_are_granted_appear_by_themselves(browser: Browser, playground: Playground) -> None:
    async with opened(browser, playground.page) as page:
        await page.clock.install()
        await page.clock.fast_forward(1000)  # it is read for the first time
        shown = page.locator("#credits [data-part=available]")
        await expect(shown).to_contain_text("credits")
        for look in ("dispatchEvent(new Event('focus'))", "document.dispatchEvent(new Event('visibilitychange'))", ""):
            before = int((await shown.inner_text()).split()[0])
            await asyncio.to_thread(playground.grant, 7)
            await (page.evaluate(look) if look else page.clock.fast_forward(30_000))
            await expect(shown).to_have_text(f"{before + 7} credits")


async def test_credits_and_quota_that_are_used_up_are_explained(browser: Browser, tmp_path: Path) -> None:
    settings = {"COST": "2", "STARTING_CREDITS": "4", "QUOTA_PER_DAY": "3", "OPENAI_URL": "http://127.0.0.1:9/v1"}
    playground = Playground(tmp_path, **{f"HOLDFAST_GENERATION_{name}": value for name, value in settings.items()})
    async with (
        playground.started(),
        opened(browser, playground.page, expected=["status of 402", "status of 429"]) as page,
    ):
        refusal = page.locator("#refusal")
        await generate(page, "a windmill", 3)
        await expect(page.get_by_text("This needs more than you have: 4 credits available")).to_be_visible()
        await expect(refusal).to_contain_text("Not enough credits")
        await expect(refusal).to_contain_text("This needs 6 credits, and 4 are available.")
        await generate(page, "a windmill", 4)
        await expect(refusal).to_contain_text("Quota used up")
        await expect(refusal).to_contain_text(re.compile(r"It resets on .*12:00.AM, in \d+ (h|min|s)"))
        await page.get_by_text("More options").click()
        await expect(page.get_by_label("Provider").locator("option")).to_have_text(["local", "openai"])
        await generate(page, "a windmill", 2)
        await expect(refusal).to_be_hidden()
        await until_shown(request(page, "a windmill"), 2)
        await expect(page.get_by_role("button", name="0 credits", exact=True)).to_be_visible()
        assert len(playground.read("/generations")["generations"]) == 1


async def test_failures_say_why_and_what_becomes_of_the_credits(browser: Browser, playground: Playground) -> None:
    async with opened(browser, playground.page) as page:
        await generate(page, "an unsteady bridge")
        retried = request(page, "an unsteady bridge")
        await expect(retried).to_contain_text("Retrying")
        await expect(retried).to_contain_text("The provider is unavailable. Attempt 1 failed; another one follows.")
        await generate(page, "an impossible staircase", 2)
        failed = request(page, "an impossible staircase")
        await expect(failed).to_contain_text("Failed")
        await expect(failed).to_contain_text("The provider cannot do what was requested.")
        await expect(failed).to_contain_text("2 credits released")
        await generate(page, "an unsafe pier")
        rejected = request(page, "an unsafe pier")
        await expect(rejected).to_contain_text("Rejected")
        await expect(rejected).to_contain_text("1 credit not refunded")
        await until_shown(retried)


async def test_the_statement_is_read_page_by_page_and_grows_by_itself(browser: Browser, playground: Playground) -> None:
    await asyncio.to_thread(playground.make_some)
    async with opened(browser, playground.page) as page:
        await with_small_pages(page)
        await page.locator("#credits").click()
        entries = page.get_by_role("dialog").locator("ol > li")
        await expect(entries).to_have_count(2)
        while await page.get_by_role("dialog").get_by_role("button", name="Show older").is_visible():
            before = await entries.count()
            await page.get_by_role("dialog").get_by_role("button", name="Show older").click()
            await expect(entries).not_to_have_count(before)
        await expect(entries.last).to_contain_text("Granted")
        await expect(entries.last).to_contain_text("+100")
        for words in ("Reserved", "Paid from reserved", "Released", "Not refunded: request rejected"):
            await expect(entries.filter(has_text=words).first).to_be_visible()
        sums = {name: int(await page.locator(f"#statement [data-part={name}]").inner_text()) for name in SUMS}
        assert sums == playground.read("/credits")
        await page.unroute_all()
        before = await entries.count()
        playground.request("a request from elsewhere")
        await look_again(page)
        await expect(entries.first).to_contain_text("a request from elsewhere")
        await expect(entries).to_have_count(before + 2)


async def test_the_library_is_searched_tagged_and_cleaned_up(browser: Browser, playground: Playground) -> None:
    for number, prompt in enumerate(("a red café", "a blue cafe", "a green door")):
        playground.request(prompt, seed=number, style="sketch", negativePrompt="people")
    async with opened(browser, playground.page, viewport=WIDE) as page:
        await until_shown(request(page, "a green door"))
        await page.get_by_role("link", name="Library").click()
        await expect(image(page, "a green door").locator("img.loaded")).to_be_visible()
        await page.get_by_label("Search prompts").fill("CAFE")
        await expect(page.locator("#grid > li")).to_have_count(2)
        await image(page, "a red café").hover()
        await page.get_by_role("button", name="Favorite: a red café").click()
        await page.get_by_role("button", name="Favorites", exact=True).click()
        await expect(page.locator("#grid > li")).to_have_count(1)
        await page.get_by_role("button", name="Details of a red café").press("Enter")
        details = page.get_by_role("dialog")
        await expect(details.locator("img.loaded")).to_be_visible()
        await expect(details.get_by_role("button", name="Remove from favorites")).to_be_visible()
        facts = details.locator("[data-part=facts]")
        for words in (r"Style\s*sketch", r"Negative prompt\s*people", r"Provider\s*local", r"Seed\s*0"):
            await expect(facts).to_contain_text(re.compile(words))
        await details.get_by_label("Tags", exact=True).fill("Corner, Street ")
        await page.keyboard.press("Enter")
        await expect(details.locator(".tags li")).to_contain_text(["corner", "street"])
        await details.get_by_role("button", name="Remove the tag street").click()
        await expect(details.locator(".tags li")).to_contain_text(["corner"])
        async with page.expect_download() as download:
            await details.get_by_role("link", name="Download").click()
        assert (await download.value).suggested_filename == "a-red-café-0.png"
        await details.get_by_role("button", name="Use these settings").click()
        settings = {"prompt": "a red café", "style": "sketch", "seed": "0", "width": "64", "negativePrompt": "people"}
        for name, value in settings.items():
            await expect(page.locator(f"#{name}")).to_have_value(value)
        await page.get_by_label("Search prompts").fill("nothing like that")
        await expect(page.get_by_text("No images match")).to_be_visible()
        await page.get_by_role("button", name="Clear filters").click()
        await page.get_by_label("Tag", exact=True).select_option("corner")
        await expect(page.locator("#grid > li")).to_have_count(1)
        await page.get_by_role("button", name="Details of a red café").click()
        await details.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("button", name="Keep it")).to_be_focused()
        await page.keyboard.press("Escape")
        await details.get_by_role("button", name="Delete").click()
        await page.locator("#confirm").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No images match")).to_be_visible()
        await page.get_by_role("link", name="Requests").click()
        await expect(request(page, "a red café").locator("img")).to_have_count(0)
    assert playground.read("/assets?search=a red cafe")["assets"] == []


async def test_a_tag_that_is_refused_is_explained(browser: Browser, playground: Playground) -> None:
    await asyncio.to_thread(playground.make_some)
    async with opened(browser, playground.page, expected=["status of 422"]) as page:
        await page.locator("#feed .picture:enabled").first.click()
        await page.get_by_role("dialog").get_by_label("Tags", exact=True).fill(",".join("abcdefghijklmnopqrstu"))
        await page.keyboard.press("Enter")
        await expect(page.locator("#tag-fault")).to_have_text("an image has at most 20 tags, got 21")


async def test_older_requests_and_images_are_read_page_by_page(browser: Browser, playground: Playground) -> None:
    await asyncio.to_thread(playground.make_some)
    total = len(playground.read("/generations?limit=100")["generations"])
    images = len(playground.read("/assets?limit=100")["assets"])
    async with opened(browser, playground.page, viewport=NARROW) as page:
        await with_small_pages(page)
        await page.reload()
        requests = page.locator("#feed > li")
        await expect(requests).to_have_count(2)
        await page.get_by_role("button", name="Show older").click()
        await expect(requests).to_have_count(4)
        assert total > 4
        await page.get_by_role("link", name="Library").click()
        for count in range(2, images, 2):
            await expect(page.locator(f"#grid > li:nth-child({count})")).to_be_attached()
            await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        await expect(page.locator("#grid > li")).to_have_count(images)


async def test_images_are_turned_with_the_keyboard(browser: Browser, playground: Playground) -> None:
    async with opened(browser, playground.page) as page:
        shown = request(page, "a pair of towers")
        await generate(page, "a pair of towers", 2)
        await shown.get_by_role("button", name="Image 1 of 2").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.locator("img.loaded")).to_be_visible()
        seed = await dialog.locator("dd code").first.inner_text()
        await expect(dialog.get_by_role("button", name="Previous image")).to_be_hidden()
        await page.keyboard.press("ArrowRight")
        await expect(dialog.locator("dd code").first).to_have_text(str(int(seed) + 1))
        await page.keyboard.press("Escape")
        await expect(shown.get_by_role("button", name="Image 1 of 2")).to_be_focused()


async def test_the_page_fits_each_screen_and_color_scheme(browser: Browser, playground: Playground) -> None:
    await asyncio.to_thread(playground.request, "a very long word: " + "Donaudampfschifffahrt" * 30)
    for size, scheme in product((WIDE, {"width": 900, "height": 700}, NARROW, PHONE), ("light", "dark")):
        async with opened(browser, playground.page, viewport=size, color_scheme=scheme) as page:
            await expect(page.locator("#feed > li").first).to_be_visible()
            for view in ("Requests", "Library"):
                await page.get_by_role("link", name=view).click()
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (size, view)
            [color] = re.findall(r"rgb\((\d+)", await page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert (int(color) < 128) == (scheme == "dark")


async def test_the_page_continues_when_the_server_is_back(browser: Browser, tmp_path: Path) -> None:
    playground = Playground(tmp_path, OBEDIENT)
    async with playground.started() as first, opened(browser, playground.page, expected=["net::ERR_"]) as page:
        async with playground.paused():
            await generate(page, "a salt desert", size="832x1216")
            await expect(request(page, "a salt desert")).to_contain_text("next in line")
            await asyncio.to_thread(first.end)
            await expect(page.locator("#gone")).to_be_visible()
            await expect(page.get_by_text("Reconnecting")).to_be_visible()
            await page.get_by_role("button", name="Generate").click()
            await expect(page.locator("#refusal")).to_contain_text("Not sent")
        async with playground.started():
            await expect(page.locator("#gone")).to_be_hidden()
            await expect(page.get_by_text("Live", exact=True)).to_be_visible()
            await until_shown(request(page, "a salt desert"))


async def test_a_server_with_keys_asks_for_one_and_keeps_the_user_signed_in(browser: Browser, tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    other, reader, user = [await asyncio.to_thread(playground.key, scopes) for scopes in ("jobs:read", READER, USER)]
    refused = ["status of 401", "status of 403", "net::ERR_"]
    async with playground.started(), opened(browser, playground.page, expected=refused) as page:
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await expect(page.get_by_role("button", name="Generate")).to_be_hidden()
        await sign_in(page, "a typing error")
        await expect(page.get_by_text("This key is not valid")).to_be_visible()
        await sign_in(page, other)
        await expect(page.get_by_text("this needs the scope generation:read")).to_be_visible()
        await sign_in(page, reader)
        await expect(page.get_by_role("button", name="Generate")).to_be_disabled()
        await expect(page.locator("#short")).to_contain_text("generating takes the scope generation:write")
        await page.get_by_label("Prompt", exact=True).fill("of somebody else")
        await page.get_by_role("button", name="Sign out").click()
        await sign_in(page, user)
        await expect(page.get_by_label("Prompt", exact=True)).to_be_empty()
        await generate(page, "blue hour", size="832x1216")
        await until_shown(request(page, "blue hour"))
        await page.reload()
        await until_shown(request(page, "blue hour"))
        await asyncio.to_thread(playground.revoke, user)
        await until_over(page)
        await expect(request(page, "blue hour")).to_have_count(0)


async def until_over(page: Page) -> None:
    async def is_over() -> bool:
        await look_again(page)
        await page.wait_for_timeout(100)
        return await page.get_by_text("The session is over").is_visible()

    await until(is_over)


async def test_the_prompt_outlasts_the_session_but_not_the_user(browser: Browser, tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    keys = [("alice", USER), ("alice", f"{USER},jobs:read"), ("bob", USER)]
    first, second, other = [await asyncio.to_thread(playground.key, scopes, name) for name, scopes in keys]
    async with playground.started(), opened(browser, playground.page, expected=["status of 401"]) as page:
        prompt = page.get_by_label("Prompt", exact=True)
        await sign_in(page, first)
        await prompt.fill("a thought that took long")
        await asyncio.to_thread(playground.revoke, first)
        await until_over(page)
        await sign_in(page, second)
        await expect(prompt).to_have_value("a thought that took long")
        await expect(prompt).to_be_focused()
        await asyncio.to_thread(playground.revoke, second)
        await until_over(page)
        await sign_in(page, other)
        await expect(prompt).to_be_visible()
        await expect(prompt).to_be_empty()
