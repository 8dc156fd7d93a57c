# SPDX-License-Identifier: Apache-2.0
"""A local network of namespaces: each host has one, and one more holds the bridge.

Nothing is made outside these namespaces, so that deleting them removes everything.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

HOSTS = 4
_COMMAND_TIMEOUT_S = 20


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(
        ["ip", *words],
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Network:
    """Namespaces, named after this process."""

    def __init__(self) -> None:
        self._base = f"penstock-{os.getpid()}"
        self._bridge = f"{self._base}-bridge"

    def namespace(self, host: int) -> str:
        return f"{self._base}-{host}"

    def address(self, host: int) -> str:
        """IPv4 address of a host, 0 to 3."""
        return f"10.77.0.{host + 1}"

    def prefix(self, host: int) -> list[str]:
        """What goes before a command so that it runs on the host."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def make(self) -> None:
        _ip("netns", "add", self._bridge)
        # Without snooping the bridge floods multicast: there is no querier here.
        _ip("-n", self._bridge, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", self._bridge, "link", "set", "br0", "up")
        for host in range(HOSTS):
            name = self.namespace(host)
            _ip("netns", "add", name)
            _ip(
                "link", "add", f"port{host}", "netns", self._bridge,
                "type", "veth", "peer", "name", "eth0", "netns", name,
            )  # fmt: skip
            _ip("-n", self._bridge, "link", "set", f"port{host}", "master", "br0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "route", "add", "224.0.0.0/4", "dev", "eth0")

    def remove(self) -> None:
        for host in range(HOSTS):
            _ip("netns", "delete", self.namespace(host), check=False)
        _ip("netns", "delete", self._bridge, check=False)

    def cut(self, host: int) -> None:
        """Takes the host off the network: its cable is pulled at the bridge."""
        _ip("-n", self._bridge, "link", "set", f"port{host}", "down")

    def join(self, host: int) -> None:
        """Puts it back."""
        _ip("-n", self._bridge, "link", "set", f"port{host}", "up")


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network for the length of the block; what was made goes, whatever happens."""
    result = Network()
    try:
        result.make()
        yield result
    finally:
        result.remove()
