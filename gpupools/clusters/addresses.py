"""Which network addresses a cluster may have: none that lead back into this machine or to a cloud's metadata.

A host name is judged by every address that it resolves to. It knows no kubeconfig and no SDK.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from gpupools.errors import Invalid, Unreachable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Where clouds answer with credentials of the machine that asks: AWS and most others are link-local, these are not.
METADATA: frozenset[Address] = frozenset(
    ipaddress.ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
ALLOWED = "the address of a Kubernetes API server on another machine"


def why_forbidden(address: Address, *, allow_loopback: bool, denied: Iterable[str] = ()) -> str:
    """Say why no cluster may live at this address, or nothing. ``denied``: networks that a setting forbids."""
    address = _inner(address)
    if network := next((text for text in denied if _within(address, text)), ""):
        return f"in {network}, which this console's settings deny"
    if address in METADATA:
        return "a cloud metadata address"
    if address.is_link_local:
        return "a link-local address, where clouds serve metadata"
    if address.is_loopback:
        return "" if allow_loopback else "a loopback address, which is the console's own machine"
    if address.is_unspecified:
        return "the unspecified address, which is the console's own machine"
    if address.is_multicast or address.is_reserved:
        return "a multicast or reserved address"
    return ""


def _within(address: Address, text: str) -> bool:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False  # a host name
    return address.version == network.version and address in network


def is_denied(host: str, denied: Iterable[str]) -> bool:
    """Tell whether a setting denies a host by its name, or the domain that it is in (``.example.com``)."""
    name = host.rstrip(".").lower()
    return any(name == text.lower() or (text.startswith(".") and name.endswith(text.lower())) for text in denied)


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one wraps, if it does: the packet ends up there."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return address.ipv4_mapped
        if address.sixtofour:
            return address.sixtofour
        if address in _NAT64 or int(address) >> 32 == 0 and int(address) > 1:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def check_host(host: str, port: int, *, field: str, allow_loopback: bool, denied: Iterable[str] = ()) -> None:
    """Refuse a host that is, or resolves to, an address where no cluster may live.

    Loopback is allowed to who names it; a name that merely leads there is not loopback in anybody's mind.
    Raises Invalid on ``field``, and Unreachable when the name does not resolve now.
    """
    if is_denied(host, denied):
        message = f"The console does not connect to {host}: its settings deny it."
        raise Invalid.field(field, message, code="forbidden-address", found=host, allowed=ALLOWED)
    for address in _addresses(host, port, field):
        reason = why_forbidden(address, allow_loopback=allow_loopback and is_loopback(host), denied=denied)
        if reason:
            shown = host if host == str(address) else f"{host} ({address})"
            raise Invalid.field(
                field,
                f"The console does not connect to {shown}: it is {reason}.",
                code="forbidden-address",
                found=shown,
                allowed=ALLOWED,
            )


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address by its own text, without asking a resolver."""
    try:
        return _inner(ipaddress.ip_address(host)).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def _addresses(host: str, port: int, field: str) -> list[Address]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise Invalid.field(
            field,
            "The server's host name is not a host name.",
            code="bad-host",
            found=host[:100],
            allowed="a host name or an address",
        ) from None
    except OSError:
        raise Unreachable(
            f"The host name {host[:100]} does not resolve to an address at the moment.", code="unresolved"
        ) from None
    return [ipaddress.ip_address(entry[4][0]) for entry in found]
