"""URLs of images come from a provider, and may be anything."""

import tracemalloc
from collections.abc import Iterator

import pytest

from tests.workloads.generation.orders import KEY, failure_of, made_at_once, opened
from tests.workloads.generation.provider_stub import (
    Answering,
    ProviderStub,
    drawn,
    endless,
    hangs_up,
    html,
    provider_stub,
    raw,
    redirect,
    short,
    silent,
    status,
    throttled,
)

MEGABYTE = 2**20
URLS = {"openai": lambda url: {"data": [{"url": url}]}, "poll": lambda url: {"status": "succeeded", "output": [url]}}


@pytest.fixture
def stub() -> Iterator[ProviderStub]:
    with provider_stub() as stub:
        yield stub


@pytest.fixture(params=URLS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def found_at(name: str, url: str) -> Answering:
    return status(200, URLS[name](url))


async def test_redirects_of_an_image_are_followed(stub: ProviderStub, name: str) -> None:
    async with opened(name, stub) as provider:
        stub.creates = [found_at(name, stub.redirecting_url(5))]
        assert (await made_at_once(provider)).data == stub.images["redirected"]
        stub.creates = [found_at(name, stub.redirecting_url(50))]
        failed = await failure_of(provider)
    assert (failed.code, failed.kind, failed.definite) == ("provider_bad_answer", "transient", False)
    assert len(stub.of("GET", "/redirects/")) == 5 + 6
    assert not [each for each in stub.of("GET") if "authorization" in each.headers]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost/",
        "http://[::1]/",
        "http://2130706433/",
        "file:///etc/passwd",
        "ftp://example.com/a.png",
        "/images/a.png",
        "a picture",
        "http://ü.example.com/",
        "http://example.com/\ud7ff\n",
        "x" * 100_000,
    ],
    ids=lambda url: url[:30].encode("ascii", "replace").decode(),
)
async def test_internal_addresses_are_not_requested(stub: ProviderStub, name: str, url: str) -> None:
    """Neither at first nor after a redirect."""
    async with opened(name, stub) as provider:
        stub.creates = [found_at(name, url)]
        direct = await failure_of(provider)
        assert (direct.code, direct.kind, direct.definite) == ("provider_bad_answer", "transient", False)
        if url.startswith(("http://1", "http://2", "http://l", "http://[", "file:", "ftp:")):
            stub.creates = [found_at(name, stub.image_url("a"))]
            stub.downloads = [redirect(url)]
            assert (await failure_of(provider)).code == "provider_bad_answer"


async def test_another_port_of_the_host_of_the_provider_is_not_requested(stub: ProviderStub, name: str) -> None:
    with provider_stub() as other:
        async with opened(name, stub) as provider:
            stub.creates = [found_at(name, other.image_url("a")), found_at(name, stub.image_url("a"))]
            stub.downloads = [redirect(other.image_url("a"))]
            for _ in range(2):
                assert (await failure_of(provider)).code == "provider_bad_answer"
        assert not other.requests


async def test_images_of_allowed_networks_are_downloaded(stub: ProviderStub, name: str) -> None:
    """Only the ports of the web: the stub has another one, so that the request itself fails."""
    stub.creates = [found_at(name, "http://127.0.0.1:8443/a.png")] * 2
    async with opened(name, stub, allow_networks="10.1.0.0/16, 127.0.0.1") as provider:
        assert (await failure_of(provider)).code == "provider_unavailable"
    async with opened(name, stub) as provider:
        assert (await failure_of(provider)).code == "provider_bad_answer"


FAULTS: dict[str, tuple[Answering, str, str]] = {
    **{
        f"a status {code}": (status(code), "provider_bad_answer", "transient")
        for code in (301, 400, 401, 403, 404, 410)
    },
    **{f"a status {code}": (status(code), "provider_unavailable", "transient") for code in (500, 502, 503, 504)},
    "throttling": (throttled("9"), "provider_throttled", "throttled"),
    "nothing": (status(200), "provider_bad_answer", "transient"),
    "a closed connection": (hangs_up, "provider_unavailable", "transient"),
    "a wrong length": (short(), "provider_unavailable", "transient"),
    "not HTTP": (raw(b"\x89PNG\r\n\r\n"), "provider_bad_answer", "transient"),
    "long headers": (raw(b"HTTP/1.1 200 OK\r\na: ", b"x" * 100_000), "provider_bad_answer", "transient"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_download_is_retried(stub: ProviderStub, name: str, fault: str) -> None:
    answering, code, kind = FAULTS[fault]
    stub.creates, stub.downloads = [found_at(name, stub.image_url("a"))], [answering]
    async with opened(name, stub) as provider:
        failed = await failure_of(provider)
    assert (failed.code, failed.kind, failed.definite) == (code, kind, False)
    assert failed.retry_after == (9 if fault == "throttling" else None)
    assert "/images/" not in failed.message, "URLs of images may be signed"


async def test_a_slow_download_is_a_timeout(stub: ProviderStub, name: str) -> None:
    stub.creates, stub.downloads = [found_at(name, stub.image_url("a"))], [silent(30)]
    async with opened(name, stub, provider_timeout_seconds=1) as provider:
        assert (await failure_of(provider)).code == "provider_timeout"


@pytest.mark.parametrize("with_length", [True, False])
async def test_a_huge_image_is_cut_off_early(stub: ProviderStub, name: str, with_length: bool) -> None:
    stub.creates, stub.downloads = [found_at(name, stub.image_url("a"))], [endless(10**9, with_length=with_length)]
    tracemalloc.start()
    try:
        async with opened(name, stub, max_image_bytes=4 * MEGABYTE) as provider:
            failed = await failure_of(provider)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (failed.code, failed.kind) == ("image_too_large", "permanent")
    assert stub.bytes_sent < 20 * MEGABYTE, "buffers of the sockets included"
    assert peak < 16 * MEGABYTE


async def test_an_image_may_have_as_many_bytes_as_the_limit_says(stub: ProviderStub, name: str) -> None:
    stub.images["a"] = drawn("a", 64, 64).ljust(1024, b"\0")
    stub.images["b"] = drawn("a", 64, 64).ljust(1025, b"\0")
    stub.creates = [found_at(name, stub.image_url(key)) for key in "ab"]
    async with opened(name, stub, max_image_bytes=1024) as provider:
        assert (await made_at_once(provider)).data == stub.images["a"]
        assert (await failure_of(provider)).code == "image_too_large"


async def test_what_is_downloaded_is_checked_elsewhere(stub: ProviderStub, name: str) -> None:
    stub.creates, stub.downloads = [found_at(name, stub.image_url("a"))], [html]
    async with opened(name, stub) as provider:
        assert (await made_at_once(provider)).data.startswith(b"<html>")
    assert not [text for text in stub.of("GET")[0].headers.values() if KEY in text]
