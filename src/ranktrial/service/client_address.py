"""The address that a request comes from, also through proxies that are trusted to tell it."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

Network = IPv4Network | IPv6Network


def checked_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks of proxies, ``10.0.0.7`` or ``10.0.0.0/24``."""
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as problem:
            raise ValueError(
                f"proxy {text!r} must be an address or a network, such as 10.0.0.0/24: {problem}"
            ) from None
    return tuple(networks)


def client_address(scope: Scope, proxies: Iterable[Network]) -> str:
    """Client address of a request: the last one in ``X-Forwarded-For`` that is no trusted proxy's.

    Anybody can make up the addresses before it. Of IPv6 it is the network of 64 bits, as one customer has.
    """
    peer = scope.get("client")
    address = _address(peer[0]) if peer else None
    if address is None:
        return ""
    named = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
    hops = named.split(",") if named else []
    while hops and any(address in network for network in proxies):
        before = _address(hops.pop().strip())
        if before is None:
            break
        address = before
    return str(ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address, with or without a port; None if it is none."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
