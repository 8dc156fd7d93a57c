# SPDX-License-Identifier: Apache-2.0
"""Address arithmetic: multicast control addresses and the choice of a network interface.

The functions of this module have no side effects; other modules resolve host names and list
interfaces. The functions use Aeron's rules, so that a URI leads to the same socket address as in
Aeron.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import attrs

from penstock.config.uri import Interface
from penstock.core.driver_types import Address


class AddressingError(ValueError):
    """Raised for an address that cannot be used; ``code`` is an error code of the control
    protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@attrs.frozen(kw_only=True)
class LocalInterface:
    """One address of a network interface of this host."""

    name: str
    index: int
    ip: str
    prefix_length: int
    is_up: bool = True
    is_loopback: bool = False
    is_multicast: bool = True

    @property
    def family(self) -> int:
        return 6 if ":" in self.ip else 4


def multicast_control(data: Address) -> Address:
    """Return the control address of a multicast group: the data address with 1 added to its last
    byte."""
    raw = bytearray(ipaddress.ip_address(data.ip).packed)
    if raw[-1] % 2 == 0:
        raise AddressingError(
            "invalid_channel",
            f"the last byte of the multicast data address {data.ip} must be odd",
        )
    raw[-1] = (raw[-1] + 1) & 0xFF
    return attrs.evolve(data, ip=str(ipaddress.ip_address(bytes(raw))))


def is_wildcard(spec: Interface) -> bool:
    """Return whether the interface is ``0.0.0.0`` or ``[::]`` without a prefix, which stands for
    any interface."""
    return spec.ip is not None and spec.ip.is_unspecified and spec.prefix_length is None


def _matches(interface: LocalInterface, spec: Interface, family: int) -> bool:
    if interface.family != family or not interface.is_up:
        return False
    if spec.name:
        return interface.name == spec.name
    if spec.scope and spec.scope not in (interface.name, str(interface.index)):
        return False
    bits = 128 if family == 6 else 32
    prefix = bits if spec.prefix_length is None else spec.prefix_length
    if is_wildcard(spec):
        prefix = 0
    network = ipaddress.ip_network(f"{spec.host}/{prefix}", strict=False)
    return ipaddress.ip_address(interface.ip) in network


def choose_interface(
    interfaces: Iterable[LocalInterface], spec: Interface, *, family: int, multicast: bool
) -> LocalInterface:
    """Return the interface of a channel.

    :param spec: the ``interface`` parameter: an IP address in ``host``, or a name in ``name``.

    The function considers only interfaces that are up and match ``spec``. For a multicast channel,
    the function chooses a loopback interface only if no other matching interface supports
    multicast. If several interfaces match, the function chooses the interface with the longest
    netmask. If several matching interfaces have the longest netmask, the function chooses the first
    of them.
    """
    matching = [i for i in interfaces if _matches(i, spec, family)]
    candidates = [i for i in matching if i.is_multicast and not i.is_loopback] if multicast else []
    if not candidates:
        candidates = [i for i in matching if i.is_loopback] if multicast else matching
    if not candidates:
        words = "multicast-capable " if multicast else ""
        raise AddressingError(
            "no_interface",
            f"interface={spec}: no {words}IPv{family} interface that is up has such an address or "
            "name (see: ip addr)",
        )
    best = candidates[0]
    for candidate in candidates[1:]:
        if candidate.prefix_length > best.prefix_length:
            best = candidate
    return best


def any_interface(family: int) -> Interface:
    """Return the wildcard address, which a multicast channel without ``interface=`` uses as its
    interface."""
    return Interface(host="::" if family == 6 else "0.0.0.0", prefix_length=0, ipv6=family == 6)
