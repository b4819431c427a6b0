"""The gallery of examples/images: how it is started, and what a user does with it."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from PIL import Image, ImageDraw
from playwright.async_api import FilePayload, Locator, Page, expect

from tests.cli.background import Background
from tests.cli.processes import holdfast
from tests.servers.daemon import free_port
from tests.workloads.images.landscapes import encoded, landscape

APP = Path(__file__).parents[3] / "examples/images/app.py"
VARIANTS = 9  # of each image
READY = re.compile(f"Ready · {VARIANTS} variants")
WIDE, NARROW = {"width": 1280, "height": 780}, {"width": 375, "height": 812}
VIEWER, EDITOR = "images:read,jobs:read", "images:read,images:write,jobs:read"  # scopes of a key
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'

# As a user drops them: the events of a drag with files in it.
DROP = """(files) => {
  const dataTransfer = new DataTransfer();
  for (const { name, mimeType, text } of files)
    dataTransfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, { type: mimeType }));
  const options = { dataTransfer, bubbles: true, cancelable: true };
  for (const type of ["dragenter", "dragover", "drop"]) document.body.dispatchEvent(new DragEvent(type, options));
}"""


class Gallery:
    """`holdfast dev` with the example, one job at a time."""

    def __init__(self, folder: Path, app: str = f"{APP}:app", **variables: str) -> None:
        self.folder, self.port = folder, free_port()
        self._app, self._variables = app, variables

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def process(self) -> Background:
        port = ["--port", str(self.port), "--concurrency", "1"]
        return Background("dev", "--app", self._app, *port, folder=self.folder, **self._variables)

    @property
    def page(self) -> str:
        return f"{self.url}/gallery"

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is asked for meanwhile happens afterwards, the most urgent first: a cancel before the job it cancels."""
        self._run("queues", "pause", "images")
        try:
            yield
        finally:
            self._run("queues", "resume", "images")

    def key(self, scopes: str) -> str:
        """Of a new key. With the first one, the server asks for a key."""
        file = self.folder / f"{scopes}.key"
        self._run("keys", "create", "--scopes", scopes, "--key-file", str(file))
        return file.read_text().strip()

    def revoke(self, key: str) -> None:
        self._run("keys", "revoke", key)

    def _run(self, *command: str) -> None:
        assert holdfast(*command, folder=self.folder).returncode == 0

    def upload(self, picture: bytes) -> httpx2.Response:
        return httpx2.post(f"{self.url}/images", content=picture)


def jpeg(name: str, width: int = 800, height: int = 600) -> FilePayload:
    return {"name": f"{name}.jpg", "mimeType": "image/jpeg", "buffer": encoded(landscape(name, width, height))}


def svg() -> FilePayload:
    """A file that the service rejects."""
    return {"name": "logo.svg", "mimeType": "image/svg+xml", "buffer": SVG}


def broken(name: str) -> FilePayload:
    """It has a header, and not all of its pixels."""
    whole = encoded(landscape(name, 800, 600))
    return {"name": f"{name}.jpg", "mimeType": "image/jpeg", "buffer": whole[: len(whole) // 2]}


def transparent(name: str) -> FilePayload:
    """A blue disc on nothing."""
    picture = Image.new("RGBA", (400, 300))
    ImageDraw.Draw(picture).ellipse((100, 50, 300, 250), fill=(20, 90, 220, 255))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return {"name": f"{name}.png", "mimeType": "image/png", "buffer": file.getvalue()}


async def corner_of(place: Locator) -> tuple[int, int, int]:
    """The color near its upper left corner, as it is seen."""
    with Image.open(io.BytesIO(await place.screenshot())) as seen:
        red, green, blue = seen.convert("RGB").getpixel((24, 24))  # type: ignore[misc]
    return red, green, blue


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.get_by_role("button", name="Sign in").click()


async def drop(page: Page, *files: FilePayload) -> None:
    """A `File` cannot be handed to a page, its bytes can."""
    texts = [{**file, "buffer": None, "text": base64.b64encode(file["buffer"]).decode()} for file in files]
    await page.evaluate(DROP, texts)


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("listitem").filter(has_text=name)


async def until_ready(*cards: Locator) -> None:
    for each in cards:
        await expect(each).to_contain_text(READY)
        await expect(each.locator("img.loaded")).to_be_visible()
