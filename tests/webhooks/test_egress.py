"""Where webhooks may not go, in every way to write it (SEC-30, K48)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.errors import AddressRefused, Invalid, Unreachable
from holdfast.net.public_addresses import is_public
from holdfast.webhooks.egress import Egress

EXAMPLE = "93.184.215.14"  # any address out in the world

# Refused as they are written, before any name is looked up.
REFUSED = """
http://example.com/hook
ftp://example.com/hook
file:///etc/passwd
gopher://example.com/
javascript:alert(1)
//example.com/hook
example.com/hook
https://
https:///hook
https:example.com
https://localhost/
https://LOCALHOST/
https://sub.localhost/
https://intranet/
https://metadata/
https://example.com./hook
https://.example.com/
https://example..com/
https://-example.com/
https://exa mple.com/
https://exa%6dple.com/
https://127.0.0.1%2f@example.com/
https://user@example.com/
https://user:password@example.com/
https://example.com@127.0.0.1/
https://127.0.0.1@example.com/
https://example.com#@127.0.0.1/
https://example.com\\@127.0.0.1/
https://example.com\\.evil.org/
https://example.com/hook#fragment
https://example.com:80/
https://example.com:22/
https://example.com:5432/
https://example.com:0/
https://example.com:65536/
https://example.com:-1/
https://example.com:http/
https://example.com:8443:443/
https://127.0.0.1/
https://127.0.0.1:8443/
https://127.255.255.254/
https://127.1/
https://127.0.1/
https://127.0.0.1./
https://0/
https://0.0.0.0/
https://2130706433/
https://0x7f000001/
https://0x7f.0x0.0x0.0x1/
https://0x7f.1/
https://0177.0.0.1/
https://0177.0.0.01/
https://017700000001/
https://00000127.0.0.1/
https://127.0.0.0x1/
https://0x/
https://127.0.0.1.0/
https://256.256.256.256/
https://4294967295/
https://10.0.0.1/
https://10.255.255.255/
https://100.64.0.1/
https://100.127.255.254/
https://169.254.169.254/latest/meta-data/
https://168.63.129.16/
https://172.16.0.1/
https://172.31.255.255/
https://192.0.0.8/
https://192.0.2.1/
https://192.88.99.1/
https://192.168.0.1/
https://198.18.0.1/
https://198.51.100.7/
https://203.0.113.9/
https://224.0.0.1/
https://239.255.255.250/
https://240.0.0.1/
https://255.255.255.255/
https://[::]/
https://[::1]/
https://[0:0:0:0:0:0:0:1]/
https://[::ffff:127.0.0.1]/
https://[::ffff:7f00:1]/
https://[::ffff:93.184.215.14]/
https://[0:0:0:0:0:ffff:a9fe:a9fe]/
https://[::127.0.0.1]/
https://[::7f00:1]/
https://[64:ff9b::127.0.0.1]/
https://[64:ff9b::a9fe:a9fe]/
https://[64:ff9b:1::1]/
https://[2002:7f00:1::]/
https://[2002:a9fe:a9fe::1]/
https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/
https://[2001:db8::1]/
https://[2001:10::1]/
https://[3fff::1]/
https://[fc00::1]/
https://[fd12:3456:789a::1]/
https://[fe80::1]/
https://[fe80::1%25eth0]/
https://[2606:2800:21f:cb07::1%25eth0]/
https://[fec0::1]/
https://[ff02::1]/
https://[100::1]/
https://[5f00::1]/
https://[::1/
https://::1/
https://[127.0.0.1]/
https://[example.com]/
https://[v1.fe80::1]/
https://\uff11\uff12\uff17.0.0.1/
https://127。0。0。1/
https://①②⑦.0.0.1/
https://ⓛocalhost/
https://exämple.com/
https://example.com/ünicode
https://example.com\t/
https://example\u200b.com/
https://example.com/\x00
""".strip("\n").split("\n")
REFUSED += ["https://exam\nple.com/", "https://example.com/\r\nX-Injected: 1", "https://example.com/\n"]

TAKEN = {
    "https://example.com": ("example.com", 443, "/"),
    "https://EXAMPLE.com/Hook": ("example.com", 443, "/Hook"),
    "https://example.com:8443/hook?a=b": ("example.com", 8443, "/hook?a=b"),
    "https://hooks_1.xn--bcher-kva.example/": ("hooks_1.xn--bcher-kva.example", 443, "/"),
    f"https://{EXAMPLE}/": (EXAMPLE, 443, "/"),
    "https://[2606:2800:21f:cb07::1]/x": ("2606:2800:21f:cb07::1", 443, "/x"),
}


def answering(*answers: str) -> Callable[[str, int], Awaitable[list[str]]]:
    async def resolver(host: str, port: int) -> list[str]:
        return list(answers)

    return resolver


def test_the_list_of_internal_address_forms_is_long_enough() -> None:
    assert len(set(REFUSED)) >= 110


@pytest.mark.parametrize("url", REFUSED, ids=ascii)
def test_no_spelling_of_a_url_reaches_an_internal_address(url: str) -> None:
    """SEC-30, K48."""
    with pytest.raises(Invalid) as refused:
        Egress().check(url)
    assert refused.value.code == "invalid_webhook_url"


@pytest.mark.parametrize("url", TAKEN)
def test_public_addresses_are_allowed(url: str) -> None:
    target = Egress().check(url)
    assert (target.host, target.port, target.path) == TAKEN[url]


@pytest.mark.parametrize(
    "value", [None, 7, b"https://example.com/", ["https://example.com/"], "", "https://e.com/" + "a" * 2048]
)
def test_an_invalid_url_is_rejected(value: object) -> None:
    with pytest.raises(Invalid):
        Egress().check(value)  # type: ignore[arg-type]


INSIDE = [
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.20.0.1", "192.168.1.1", "224.0.0.251"),
    *("::", "::1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::808:808", "2002:808:808::1"),
    *("2001::1", "fc00::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001:db8::1", "not an address"),
]


@pytest.mark.parametrize("address", INSIDE)
async def test_a_host_name_that_resolves_to_an_internal_address_is_rejected(address: str) -> None:
    """SEC-30, K48: every address counts, wherever it stands in the answer."""
    assert not is_public(address)
    for answers in ([address], [EXAMPLE, address], [address, EXAMPLE]):
        egress = Egress(resolver=answering(*answers))
        with pytest.raises(AddressRefused, match="not public"):
            await egress.addresses(egress.check("https://example.com/"))


async def test_the_checked_addresses_are_returned() -> None:
    egress = Egress(resolver=answering(EXAMPLE, "2606:2800:21f:cb07::1"))
    assert await egress.addresses(egress.check("https://example.com/")) == [EXAMPLE, "2606:2800:21f:cb07::1"]


async def test_a_host_name_is_resolved_once_per_attempt() -> None:
    """SEC-30: the address that was checked is the one that is given out; the next try checks again."""
    said = iter([EXAMPLE, "127.0.0.1"])

    async def flipping(host: str, port: int) -> list[str]:
        return [next(said)]

    egress = Egress(resolver=flipping)
    target = egress.check("https://example.com/")
    assert await egress.addresses(target) == [EXAMPLE]
    with pytest.raises(AddressRefused):
        await egress.addresses(target)


async def test_an_unresolvable_host_name_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("holdfast.net.egress_rules.RESOLVE_SECONDS", 0.01)
    for resolver in (failing, silent, answering()):
        egress = Egress(resolver=resolver)
        with pytest.raises(Unreachable, match="cannot be resolved"):
            await egress.addresses(egress.check("https://example.com/"))


def test_with_an_allow_list_only_its_hosts_are_allowed() -> None:
    """SEC-33."""
    egress = Egress(hosts="hooks.example.com, *.example.org")
    for url in ("https://hooks.example.com/x", "https://a.example.org/", "https://a.b.EXAMPLE.org/"):
        egress.check(url)
    for url in ("https://example.com/", "https://example.org/", "https://evilexample.org/", f"https://{EXAMPLE}/"):
        with pytest.raises(Invalid, match="allowed hosts"):
            egress.check(url)
        egress.check(url, listed=False)


async def test_private_networks_can_be_allowed() -> None:
    egress = Egress(private=True, resolver=answering("10.0.0.7"))
    target = egress.check("http://hooks:9000/x")
    assert await egress.addresses(target) == ["10.0.0.7"]
    assert target.authority == "hooks:9000"
    assert await egress.addresses(egress.check("http://[::1]:9000/")) == ["::1"]
    for url in ("http://user@10.0.0.7/", "ftp://10.0.0.7/", "http://0x7f.1/", "http://[fe80::1%25eth0]/"):
        with pytest.raises(Invalid):
            egress.check(url)
