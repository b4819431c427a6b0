"""The playground of examples/generation: how it is started, and what a user does with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from playwright.async_api import Locator, Page, Route, expect

from tests.cli.background import Background
from tests.cli.processes import holdfast
from tests.servers.daemon import free_port

ROOT = Path(__file__).parents[3]
EXAMPLE = f"{ROOT}/examples/generation/app.py:app"
OBEDIENT = "tests.workloads.generation.playground_app:app"  # its provider does what the prompt says
ENDED = {"completed", "dead_letter", "rejected"}
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
READER, USER = "generation:read", "generation:read,generation:write"  # scopes of a key
PHONE = {"width": 320, "height": 640}
PAGES = {"/generations?limit=8": "/generations?limit=2", "/assets?limit=30": "/assets?limit=2"}
PAGES |= {"/statement?limit=20": "/statement?limit=2"}


class Playground:
    """`holdfast dev` with the example, one job at a time."""

    def __init__(self, folder: Path, app: str = EXAMPLE, **variables: str) -> None:
        self.folder, self.port, self._app = folder, free_port(), app
        self.steps = folder / "steps"
        self.steps.mkdir()
        self._variables = {"GENERATION_STEPS": str(self.steps), "PYTHONPATH": str(ROOT), **variables}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def page(self) -> str:
        return f"{self.url}/playground"

    def process(self) -> Background:
        port = ["--port", str(self.port), "--concurrency", "1"]
        return Background("dev", "--app", self._app, *port, folder=self.folder, **self._variables)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Background]:
        with self.process() as dev:
            await asyncio.to_thread(dev.until_it_says, "Ctrl-C stops it")
            yield dev

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """What is requested meanwhile stays queued."""
        await asyncio.to_thread(self._run, "queues", "pause", "generation")
        try:
            yield
        finally:
            await asyncio.to_thread(self._run, "queues", "resume", "generation")

    @asynccontextmanager
    async def one_at_a_time(self) -> AsyncIterator[None]:
        """The worker does not claim the next request ahead, which would be shown as running."""
        limit = ("limits", "set", "type:GENERATION_RUN", "--concurrency")
        await asyncio.to_thread(self._run, *limit, "1")
        try:
            yield
        finally:
            await asyncio.to_thread(self._run, *limit, "none")

    def key(self, scopes: str, subject: str = "alice") -> str:
        """Of a new key. With the first one, the server asks for a key."""
        file = self.folder / f"{subject} {scopes}.key"
        self._run("keys", "create", "--scopes", scopes, "--subject", subject, "--key-file", str(file))
        return file.read_text().strip()

    def revoke(self, key: str) -> None:
        self._run("keys", "revoke", key)

    def grant(self, amount: int, user: str = "default") -> None:
        """By an operator."""
        self._run("credits", "grant", user, str(amount), "--reason", "for a test")

    def _run(self, *command: str) -> None:
        assert holdfast(*command, folder=self.folder).returncode == 0

    def read(self, path: str) -> Any:
        return httpx2.get(f"{self.url}{path}").json()

    def request(self, prompt: str, **more: Any) -> None:
        """From elsewhere."""
        httpx2.post(f"{self.url}/generations", json={"prompt": prompt, "width": 64, "height": 64, **more})

    def make_some(self) -> None:
        """Requests that ended in each way, so that no test needs those of another one."""
        for prompt in (*(f"an older picture {number}" for number in range(5)), "impossible so far", "unsafe so far"):
            self.request(prompt)
        while not {each["status"] for each in self.read("/generations")["generations"]} <= ENDED:
            time.sleep(0.1)


async def generate(page: Page, prompt: str, count: int = 1, size: str = "1024x1024", style: str = "") -> None:
    await page.get_by_label("Prompt", exact=True).fill(prompt)
    await page.locator("#style").fill(style)
    await page.locator(f"input[name=size][value='{size}']").check()
    await page.locator(f"input[name=count][value='{count}']").check()
    await page.get_by_role("button", name="Generate").click()


def request(page: Page, prompt: str) -> Locator:
    return page.locator("#feed > li").filter(has_text=prompt)


def image(page: Page, prompt: str) -> Locator:
    return page.locator("#grid > li").filter(has_text=prompt)


async def until_shown(request: Locator, count: int = 1) -> None:
    await expect(request).to_contain_text("Completed")
    await expect(request.locator("img.loaded")).to_have_count(count)


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.get_by_role("button", name="Sign in").click()


async def with_small_pages(page: Page) -> None:
    """Lists have pages of two entries."""

    async def shorten(route: Route) -> None:
        url = route.request.url
        for long, short in PAGES.items():
            url = url.replace(long, short)
        await route.continue_(url=url)

    await page.route("**/*limit=*", shorten)


async def look_again(page: Page) -> None:
    """As when its window is shown again."""
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
