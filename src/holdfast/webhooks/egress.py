"""Egress rules for webhooks: https, ports 443 and 8443, public addresses."""

from __future__ import annotations

from holdfast.errors import AddressRefused, Invalid
from holdfast.net.egress_rules import EgressRules, Resolver, Target, resolve

PORTS = {443, 8443}


class Egress(EgressRules):
    """`private` allows http, any port and any address: for tests, and for networks that are protected otherwise."""

    url_max = 2048

    def __init__(self, *, hosts: str = "", private: bool = False, resolver: Resolver = resolve) -> None:
        schemes = ("https", "http") if private else ("https",)
        super().__init__(schemes=schemes, ports=PORTS, hosts=hosts, private=private, resolver=resolver)

    def check(self, url: str, *, listed: bool = True) -> Target:
        try:
            return super().check(url, listed=listed)
        except AddressRefused as refused:
            raise Invalid(f"invalid webhook URL: {refused.reason}", code="invalid_webhook_url") from None
