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
def test_no_form_of_a_url_leads_to_an_internal_address(url: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        EgressRules().check(url)
    assert refused.value.code == "address_refused"
    assert refused.value.message.startswith("this URL may not be requested: ")


@pytest.mark.parametrize("url", ["http://example.com/", "http://example.com:8080/", "https://example.com:8443/a?b=c"])
def test_the_web_may_be_requested(url: str) -> None:
    assert EgressRules().check(url).url == url


def test_a_url_may_be_as_long_as_servers_read() -> None:
    assert EgressRules().check(f"https://example.com/{'a' * 7980}").path.endswith("aaa")
    with pytest.raises(AddressRefused, match="8000"):
        EgressRules().check(f"https://example.com/{'a' * 7981}")


def test_ports_are_those_of_the_web_unless_others_are_given() -> None:
    url = "http://example.com:9000/"
    with pytest.raises(AddressRefused, match="80, 443, 8080, 8443"):
        EgressRules().check(url)
    assert EgressRules(ports=[9000]).check(url).port == 9000
    assert EgressRules(ports=None).check(url).port == 9000
    with pytest.raises(AddressRefused, match="port 0 is invalid"):
        EgressRules(ports=None).check("http://example.com:0/")


def test_only_the_given_schemes() -> None:
    with pytest.raises(AddressRefused, match=r"must begin with https://$"):
        EgressRules(schemes=["https"]).check("http://example.com/")


async def test_an_allowed_network_may_be_requested_and_its_neighbours_may_not() -> None:
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
async def test_a_name_may_not_stand_for_an_internal_address(address: str) -> None:
    rules = EgressRules(resolver=answering(EXAMPLE, address))
    with pytest.raises(AddressRefused):
        await rules.addresses(rules.check("https://example.com/"))


async def test_names_that_are_slow_to_fail_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_network_that_cannot_be_read_is_refused_at_once() -> None:
    for text in ("10.0.0.0/99", "10.0.0.1/8", "internal"):
        with pytest.raises(Invalid) as refused:
            EgressRules(allow=[text])
        assert refused.value.code == "invalid_network"
