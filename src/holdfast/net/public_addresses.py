"""Public IP addresses. Every other address belongs to an internal network and is refused."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address, ip_network

# All of IPv4 except these.
_PRIVATE_4 = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host, this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a carrier's NAT
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's platform service, at an address that looks public
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation, as are 198.51.100 and 203.0.113
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
# Of IPv6 only global unicast, without ranges that embed IPv4 addresses: such a host is also reachable by IPv4.
_GLOBAL_6 = ip_network("2000::/3")
_PRIVATE_6 = [
    ip_network(text)
    for text in (
        "2001::/23",  # Teredo, ORCHID and other protocols
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
]


def is_public(text: str) -> bool:
    """`text` is an address from a resolver. An address with a zone is link-local and not public."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _PRIVATE_4)
    is_global = address.scope_id is None and address in _GLOBAL_6
    return is_global and not any(address in network for network in _PRIVATE_6)
