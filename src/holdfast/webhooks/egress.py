"""Where a webhook may go: which URLs are taken at all, and which addresses a name may have at each try (SEC-30)."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import Invalid
from holdfast.webhooks.addresses import is_public

URL_MAX = 2048
PORTS = {443, 8443}
RESOLVE_SECONDS = 5.0
DEFAULT_PORT = {"https": 443, "http": 80}

Resolver = Callable[[str, int], Awaitable[list[str]]]

_PLAIN = re.compile(r"[!-~]+")  # printable ASCII: what is not can look like something else than it is
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Refused(Exception):
    """This URL may not be asked now; the message says why."""


class Target(NamedTuple):
    """A URL taken apart. `host` is a name or an address, in its plain form."""

    scheme: str
    host: str
    port: int
    path: str
    is_address: bool

    @property
    def authority(self) -> str:
        """As the header `Host` has it."""
        shown = bracketed(self.host)
        return shown if self.port == DEFAULT_PORT[self.scheme] else f"{shown}:{self.port}"


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def resolve(host: str, port: int) -> list[str]:
    """What the system says, once."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class Egress:
    """`private` takes http, any port and any address: for tests, and for networks that end at their own walls."""

    def __init__(self, *, hosts: str = "", private: bool = False, resolver: Resolver = resolve) -> None:
        self._hosts = [host.strip().lower() for host in hosts.split(",") if host.strip()]
        self._private, self._resolve = private, resolver

    def check(self, url: str, *, listed: bool = True) -> Target:
        """The URL as it is written. `listed`: its host must be on the list, where there is one."""
        try:
            target = self._read(url)
            if listed:
                self._check_listed(target.host)
        except Refused as refused:
            raise Invalid(f"this URL cannot be a webhook's: {refused}", code="invalid_webhook_url") from None
        return target

    async def addresses(self, target: Target) -> list[str]:
        """Where to connect, now. Every address of a name must be public: which one is used is not ours to say."""
        found = [target.host] if target.is_address else await self._resolved(target)
        if not self._private and not all(is_public(address) for address in found):
            raise Refused("the host has an address that is not public")
        return found

    async def _resolved(self, target: Target) -> list[str]:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError, TimeoutError):
            found = []
        if not found:
            raise Refused("the host's name cannot be resolved")
        return found

    def _read(self, url: str) -> Target:
        if not isinstance(url, str) or len(url) > URL_MAX or not _PLAIN.fullmatch(url) or "\\" in url:
            raise Refused(f"it must be 1 to {URL_MAX} printable ASCII characters; write other names as xn--...")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise Refused("it cannot be read") from None
        self._check_scheme(parts)
        if "@" in parts.netloc or "#" in url:
            raise Refused("no user, password or fragment may stand in it")
        port = DEFAULT_PORT[parts.scheme] if port is None else port
        if not self._private and port not in PORTS:
            raise Refused(f"its port must be one of {', '.join(map(str, sorted(PORTS)))}")
        host, is_address = self._host(parts)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return Target(parts.scheme, host, port, path, is_address)

    def _check_scheme(self, parts: SplitResult) -> None:
        taken = ("https", "http") if self._private else ("https",)
        if parts.scheme not in taken:
            raise Refused(f"it must begin with {' or '.join(f'{scheme}://' for scheme in taken)}")

    def _host(self, parts: SplitResult) -> tuple[str, bool]:
        written = (parts.hostname or "").lower()
        if "[" in parts.netloc:
            return self._address(IPv6Address, written), True
        labels = written.split(".")
        if _NUMBER.fullmatch(labels[-1]):  # 127.0.0.1, and also 127.1, 0x7f.1, 2130706433, 0177.0.0.1
            return self._address(IPv4Address, written), True
        if not all(_LABEL.fullmatch(label) for label in labels) or len(written) > 253:
            raise Refused("its host is not a name")
        if not self._private and (len(labels) == 1 or labels[-1] == "localhost"):
            raise Refused("its host is a name of this network")
        return written, False

    def _address(self, kind: type[IPv4Address] | type[IPv6Address], written: str) -> str:
        try:
            address = kind(written)
        except ValueError:
            raise Refused("its host is neither a name nor an address in its plain form") from None
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise Refused("an address with a zone is on one link only")
        if not self._private and not is_public(str(address)):
            raise Refused("its host is an address that is not public")
        return str(address)

    def _check_listed(self, host: str) -> None:
        def fits(listed: str) -> bool:
            return host.endswith(listed[1:]) if listed.startswith("*.") else host == listed

        if self._hosts and not any(fits(listed) for listed in self._hosts):
            raise Refused("its host is not among those that this installation allows")
