"""Which URLs and addresses extensions may request (SEC-30, K48). What holds for webhooks too is in tests/webhooks."""

import asyncio
import socket
from threading import Event
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.net import AddressRefused, EgressRules
from holdfast.net.egress_rules import resolve
from tests.webhooks.test_egress import EXAMPLE, INSIDE, REFUSED, answering

OF_WEBHOOKS_ONLY = {"http://example.com/hook", "https://example.com:80/"}


@pytest.mark.parametrize("url", [url for url in REFUSED if url not in OF_WEBHOOKS_ONLY], ids=ascii)
def test_no_spelling_of_a_url_reaches_an_internal_address(url: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        EgressRules().check(url)
    assert refused.value.code == "address_refused"
    assert refused.value.message.startswith("this URL may not be requested: ")


@pytest.mark.parametrize("url", ["http://example.com/", "http://example.com:8080/", "https://example.com:8443/a?b=c"])
def test_public_addresses_are_allowed(url: str) -> None:
    assert EgressRules().check(url).url == url


def test_a_long_url_is_allowed_up_to_the_limit() -> None:
    assert EgressRules().check(f"https://example.com/{'a' * 7980}").path.endswith("aaa")
    with pytest.raises(AddressRefused, match="8000"):
        EgressRules().check(f"https://example.com/{'a' * 7981}")


def test_only_ports_80_and_443_are_allowed_by_default() -> None:
    url = "http://example.com:9000/"
    with pytest.raises(AddressRefused, match="80, 443, 8080, 8443"):
        EgressRules().check(url)
    assert EgressRules(ports=[9000]).check(url).port == 9000
    assert EgressRules(ports=None).check(url).port == 9000
    with pytest.raises(AddressRefused, match="port 0 is invalid"):
        EgressRules(ports=None).check("http://example.com:0/")


def test_only_the_configured_schemes_are_allowed() -> None:
    with pytest.raises(AddressRefused, match=r"must begin with https://$"):
        EgressRules(schemes=["https"]).check("http://example.com/")


async def test_an_allowed_network_does_not_allow_its_neighbours() -> None:
    allow = ["10.1.0.0/16", "fd00::/64"]
    for address in ("10.1.2.3", "fd00::7", EXAMPLE):
        rules = EgressRules(allow=allow, resolver=answering(address))
        assert await rules.addresses(rules.check("http://storage/")) == [address]
    for address in ("10.2.0.1", "127.0.0.1", "169.254.169.254", "::ffff:10.1.2.3", "not an address"):
        rules = EgressRules(allow=allow, resolver=answering("10.1.2.3", address))
        with pytest.raises(AddressRefused, match=r"storage: .*not public"):
            await rules.addresses(rules.check("http://storage/"))
    assert EgressRules(allow=allow).check("http://10.1.2.3/").is_address
    with pytest.raises(AddressRefused):
        EgressRules(allow=allow).check("http://10.2.2.3/")


@pytest.mark.parametrize("address", INSIDE)
async def test_a_host_name_that_resolves_to_an_internal_address_is_rejected(address: str) -> None:
    rules = EgressRules(resolver=answering(EXAMPLE, address))
    with pytest.raises(AddressRefused):
        await rules.addresses(rules.check("https://example.com/"))


async def test_slow_name_lookups_do_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    over, ask = Event(), socket.getaddrinfo

    def slow(host: str, *args: Any, **words: Any) -> Any:
        if host != "fast.example.com":
            over.wait(60)
        return ask("127.0.0.1", *args, **words)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    dead = [asyncio.create_task(resolve(f"dead-{n}.example.com", 80)) for n in range(60)]
    try:
        await asyncio.sleep(0)
        assert await asyncio.wait_for(resolve("fast.example.com", 80), 60) == ["127.0.0.1"]
        assert not any(task.done() for task in dead)
    finally:
        for task in dead:
            task.cancel()
        over.set()
        await asyncio.gather(*dead, return_exceptions=True)


def test_an_invalid_network_is_an_error_at_once() -> None:
    for text in ("10.0.0.0/99", "10.0.0.1/8", "internal"):
        with pytest.raises(Invalid) as refused:
            EgressRules(allow=[text])
        assert refused.value.code == "invalid_network"
