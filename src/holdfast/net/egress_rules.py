"""Egress rules: which URLs may be requested, and which addresses their hosts may resolve to at that moment."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import Future
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from threading import Thread
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import AddressRefused, Invalid, Unreachable
from holdfast.net.public_addresses import is_public

WEB_PORTS = frozenset({80, 443, 8080, 8443})
RESOLVE_SECONDS = 5.0
DEFAULT_PORT = {"https": 443, "http": 80}

# From a host name and a port to IP addresses.
Resolver = Callable[[str, int], Awaitable[list[str]]]

_PLAIN = re.compile(r"[!-~]+")  # printable ASCII: other characters can be homoglyphs
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Target(NamedTuple):
    """The parts of a URL that passed the rules. `host` is a name or an address in canonical form."""

    scheme: str
    host: str
    port: int
    path: str
    is_address: bool

    @property
    def authority(self) -> str:
        """As in the `Host` header."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == DEFAULT_PORT[self.scheme] else f"{shown}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver once, in a new thread: in a thread pool, slow names would block all others, because a
    blocked lookup cannot be cancelled."""
    found: Future[list[str]] = Future()
    found.set_running_or_notify_cancel()

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.set_result(list(dict.fromkeys(str(answer[4][0]) for answer in answers)))
        except Exception as error:
            found.set_exception(error)

    Thread(target=look_up, name="holdfast-resolve", daemon=True).start()
    return await asyncio.wrap_future(found)


class EgressRules:
    """By default: http and https, ports 80, 443, 8080 and 8443, public addresses.

    `hosts`: only these (`"api.example.com, *.example.org"`). `allow`: private networks that are allowed
    (`["10.1.0.0/16"]`). `trusted`: URLs whose scheme, host and port together are allowed, although the port is not on
    the list or the address is not public. `ports=None`: any port. `private=True`: any port and any address, for tests
    and for networks that are protected otherwise."""

    url_max = 8000  # characters; servers need not read more (RFC 9110)

    def __init__(
        self,
        *,
        schemes: Collection[str] = ("https", "http"),
        ports: Collection[int] | None = WEB_PORTS,
        hosts: str = "",
        allow: Iterable[str] = (),
        trusted: Iterable[str] = (),
        private: bool = False,
        resolver: Resolver = resolve,
    ) -> None:
        self._schemes, self._ports = schemes, None if private else ports
        self._hosts = [host.strip().lower() for host in hosts.split(",") if host.strip()]
        self._allowed = [_network(text) for text in allow]
        self._private, self._resolve = private, resolver
        self._trusted = frozenset(self._origin(url) for url in trusted)

    def check(self, url: str, *, listed: bool = True) -> Target:
        """Check and split a URL. `listed`: its host must be on the `hosts` list, if there is one."""
        target = self._read(url)
        if target.origin not in self._trusted:
            self._check_port(target.port)
            self._check_host(target)
        if listed:
            self._check_listed(target.host)
        return target

    async def addresses(self, target: Target) -> list[str]:
        """Resolve the host now. One forbidden address is enough to refuse the name."""
        found = [target.host] if target.is_address else await self._resolved(target)
        if target.origin not in self._trusted and not all(self._may_request(address) for address in found):
            raise AddressRefused("the host has an address that is not public", about=target.authority)
        return found

    async def _resolved(self, target: Target) -> list[str]:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError, TimeoutError):
            found = []
        if not found:
            raise Unreachable("the host name cannot be resolved", about=target.authority)
        return found

    def _may_request(self, text: str) -> bool:
        return self._private or is_public(text) or self._is_allowed(text)

    def _is_allowed(self, text: str) -> bool:
        try:
            address = ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._allowed)

    def _read(self, url: str) -> Target:
        if not isinstance(url, str) or len(url) > self.url_max or not _PLAIN.fullmatch(url) or "\\" in url:
            raise _refused(f"it must be 1 to {self.url_max} printable ASCII characters; write other names as xn--...")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _refused("it is malformed") from None
        if parts.scheme not in self._schemes:
            raise _refused(f"it must begin with {' or '.join(f'{scheme}://' for scheme in self._schemes)}")
        if "@" in parts.netloc or "#" in url:
            raise _refused("it must not contain a user, password or fragment")
        if port == 0:
            raise _refused("port 0 is invalid")
        host, is_address = _host("[" in parts.netloc, (parts.hostname or "").lower())
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return Target(parts.scheme, host, DEFAULT_PORT[parts.scheme] if port is None else port, path, is_address)

    def _origin(self, url: str) -> tuple[str, str, int]:
        try:
            return self._read(url).origin
        except AddressRefused as refused:
            raise Invalid(f"a trusted URL is invalid: {refused.reason}", code="invalid_origin") from None

    def _check_port(self, port: int) -> None:
        if self._ports is not None and port not in self._ports:
            raise _refused(f"its port must be one of {', '.join(map(str, sorted(self._ports)))}")

    def _check_host(self, target: Target) -> None:
        if target.is_address:
            if not self._may_request(target.host):
                raise _refused("its host is an address that is not public")
            return
        labels = target.host.split(".")
        is_local = len(labels) == 1 or labels[-1] == "localhost"
        if is_local and not self._private and not self._allowed:
            raise _refused("its host is a local name")

    def _check_listed(self, host: str) -> None:
        def fits(listed: str) -> bool:
            return host.endswith(listed[1:]) if listed.startswith("*.") else host == listed

        if self._hosts and not any(fits(listed) for listed in self._hosts):
            raise _refused("its host is not on the list of allowed hosts")


def _host(is_bracketed: bool, written: str) -> tuple[str, bool]:
    """In canonical form, and whether it is an address."""
    if is_bracketed:
        return _address(IPv6Address, written), True
    labels = written.split(".")
    if _NUMBER.fullmatch(labels[-1]):  # 127.0.0.1, and also 127.1, 0x7f.1, 2130706433, 0177.0.0.1
        return _address(IPv4Address, written), True
    if not all(_LABEL.fullmatch(label) for label in labels) or len(written) > 253:
        raise _refused("its host is not a valid name")
    return written, False


def _address(kind: type[IPv4Address] | type[IPv6Address], written: str) -> str:
    try:
        address = kind(written)
    except ValueError:
        raise _refused("its host is neither a name nor an address in canonical form") from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise _refused("link-local addresses with a zone are not allowed")
    return str(address)


def _refused(reason: str) -> AddressRefused:
    return AddressRefused(reason, about="this URL may not be requested")


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a network such as 10.1.0.0/16", code="invalid_network") from None
