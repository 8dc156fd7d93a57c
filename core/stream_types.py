# SPDX-License-Identifier: Apache-2.0
"""Enums and classes that clients need. The module :mod:`penstock.core.driver_types` has the types
that only the driver needs.

A client's process imports ``stream_types``, but not ``driver_types``: the driver's classes would
take a tenth of the client's import time.
"""

from __future__ import annotations

import enum
import ipaddress

import attrs


class Cause(enum.IntEnum):
    """The cause that blocks a stream (docs/spec/rules.md section 6)."""

    NONE = 0
    RECEIVER_WINDOW = 1
    GROUP_STRATEGY = 2
    CONGESTION_WINDOW = 3
    NAK_RATE = 4
    CREDIT = 5
    SCHEDULER = 6
    GOVERNOR = 7
    RATE_LIMIT = 8
    TERM_ROTATION = 9
    NO_RECEIVER = 10
    SLOW_SUBSCRIBER = 11
    SPY = 12
    LOSS_REPAIR = 13
    SOCKET = 14
    BLOCKED_CLAIM = 15
    JOIN_HOLD = 16
    STORAGE = 17
    DAEMON_AWAY = 18


class Watermark(enum.IntEnum):
    """Back-pressure state of a publication. The state changes when the amount of data that waits in
    the publication's log crosses a watermark (``ps_policy.h``)."""

    NORMAL = 0
    HIGH = 1
    PAUSED = 2
    LOW = 3


@attrs.frozen(kw_only=True)
class Address:
    """An IP address and port. ``ip`` is the address as canonical text, without an IPv6 scope."""

    ip: str
    port: int
    scope_id: int = 0

    @property
    def family(self) -> int:
        return 6 if ":" in self.ip else 4

    @property
    def is_multicast(self) -> bool:
        return ipaddress.ip_address(self.ip).is_multicast

    @property
    def is_wildcard(self) -> bool:
        return ipaddress.ip_address(self.ip).is_unspecified

    def packed(self) -> bytes:
        """Return the address in network order, padded to 16 bytes."""
        return ipaddress.ip_address(self.ip).packed.ljust(16, b"\0")

    def with_port(self, port: int) -> Address:
        return attrs.evolve(self, port=port)

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.family == 6 else f"{self.ip}:{self.port}"
