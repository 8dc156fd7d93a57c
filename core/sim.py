# SPDX-License-Identifier: Apache-2.0
"""The simulated network (ps_sim.h): hosts, links and datagrams in virtual time."""

from __future__ import annotations

from typing import Any

import attrs

from penstock.core._convert import check, fill, last_error, new_address
from penstock.core._lib import ffi, lib
from penstock.core.driver import Net
from penstock.core.driver_types import Address
from penstock.core.errors import native_error


@attrs.frozen(kw_only=True)
class Link:
    """One direction between two hosts.  Probabilities in parts per million; 0 bandwidth or queue:
    without limit."""

    delay_ns: int = 0
    jitter_ns: int = 0
    bandwidth_bytes_per_s: int = 0
    queue_bytes: int = 0
    loss_ppm: int = 0


@attrs.frozen(kw_only=True)
class NetworkStatistics:
    """Datagrams, but for ``bytes_sent``."""

    sent: int
    delivered: int
    lost: int
    queue_full: int
    buffer_full: int
    unreachable: int
    bytes_sent: int


class SimNetwork:
    """All that happens on it is a function of the seed and of the calls."""

    def __init__(self, seed: int) -> None:
        out = ffi.new("ps_simnet_t **")
        check(lib.ps_simnet_create(seed % 2**64, out), "make a simulated network")
        self._handle: Any = out[0]

    def close(self) -> None:
        """Every driver on it must be closed before.  Idempotent."""
        if self._handle is not None:
            lib.ps_simnet_destroy(self._handle)
            self._handle = None

    def add_host(self, *ips: str) -> int:
        """Index of a new host with these addresses."""
        host = check(lib.ps_simnet_add_host(self._handle), "add a host")
        for ip in ips:
            address = new_address(Address(ip=ip, port=0))
            check(lib.ps_simnet_add_address(self._handle, host, address), f"give {ip} to a host")
        return host

    def set_link(self, link: Link, *, sender: int = -1, receiver: int = -1) -> None:
        """Changes the link between two of the hosts there are; -1: all of them."""
        native = ffi.new("ps_simnet_link_t *")
        fill(native, link)
        check(lib.ps_simnet_set_link(self._handle, sender, receiver, native), "change a link")

    def host_net(self, host: int) -> Net:
        """The transport of a host, for its driver."""
        net = lib.ps_simnet_host_net(self._handle, host)
        if net == ffi.NULL:
            raise native_error(-1003, last_error(), operation="make a host's network")
        return Net(net)

    def next_event_ns(self) -> int:
        """When the next datagram arrives; NEVER_NS: none is under way."""
        return int(lib.ps_simnet_next_event_ns(self._handle))

    def advance(self, now_ns: int) -> int:
        """Lets arrive what is due.  Returns how many datagrams."""
        return int(lib.ps_simnet_advance(self._handle, now_ns))

    def trace_hash(self) -> int:
        """64 bits over everything sent and everything arrived."""
        return int(lib.ps_simnet_trace_hash(self._handle))

    def statistics(self) -> NetworkStatistics:
        native = ffi.new("ps_simnet_stats_t *")
        lib.ps_simnet_statistics(self._handle, native)
        names = [field.name for field in attrs.fields(NetworkStatistics)]
        return NetworkStatistics(**{name: int(getattr(native, name)) for name in names})
