# SPDX-License-Identifier: Apache-2.0
"""Provide the network between the two hosts of a measurement: loopback, or two network
namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import attrs

from penstock._bench.processes import BenchError


@attrs.frozen(kw_only=True)
class Side:
    """One host of the measurement."""

    address: str
    prefix: tuple[str, ...] = ()
    """Goes before a command line to run it there."""


@attrs.frozen(kw_only=True)
class Network:
    """Publisher's and subscriber's host."""

    name: str
    a: Side
    b: Side


@contextlib.contextmanager
def network(*, veth: bool) -> Iterator[Network]:
    """Provide the loopback interface, or a veth pair between two network namespaces. The veth pair
    needs root, and is removed at the end.
    """
    if not veth:
        here = Side(address="127.0.0.1")
        yield Network(name="loopback", a=here, b=here)
        return
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise BenchError("--veth needs root and the command ip")
    names = [f"penstock-{os.getpid()}-{side}" for side in "ab"]
    links = [f"psb{os.getpid()}{side}"[-15:] for side in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", links[0], "netns", names[0], "type", "veth",
            "peer", "name", links[1], "netns", names[1])
        for number, (name, link) in enumerate(zip(names, links, strict=True), start=1):
            _ip("-n", name, "address", "add", f"10.213.0.{number}/24", "dev", link)
            _ip("-n", name, "link", "set", link, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        a, b = (
            Side(address=f"10.213.0.{number}", prefix=("ip", "netns", "exec", name))
            for number, name in enumerate(names, start=1)
        )
        yield Network(name="veth", a=a, b=b)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def free_port() -> int:
    """Return a port number that no UDP or TCP socket of this network namespace uses."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
    ):
        while True:
            datagrams.bind(("127.0.0.1", 0))
            port: int = datagrams.getsockname()[1]
            with contextlib.suppress(OSError):
                stream.bind(("127.0.0.1", port))
            return port
