# SPDX-License-Identifier: Apache-2.0
"""Send notifications to systemd: the part of the sd_notify protocol that the daemon needs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends the daemon's state to systemd. If systemd did not start the daemon, the methods do
    nothing."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._address = environment.get("NOTIFY_SOCKET", "")
        watchdog = environment.get("WATCHDOG_USEC", "")
        self.watchdog = bool(self._address) and watchdog.isdigit() and int(watchdog) > 0

    def send(self, *lines: str) -> None:
        """Send lines such as ``READY=1`` to systemd. Do nothing if systemd does not listen."""
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            try:
                channel.sendto("\n".join(lines).encode(), address)
            except OSError:
                return
