# SPDX-License-Identifier: Apache-2.0
"""A network for each worker of a run: a namespace with loopback alone, for root on Linux.

What a test starts is in the namespace too.  ``machine_network`` leads back for what downloads.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_libc = ctypes.CDLL(None, use_errno=True)
#: The namespaces that this process came from and went to; both stay open.
_machine: int | None = None
_own: int | None = None


@functools.cache
def is_allowed() -> bool:
    """Whether namespaces can be made here."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0


def _must(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _here() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter() -> None:
    """Take the calling thread, and all that it starts from now on, to a new network."""
    global _machine, _own
    _machine = _here()
    _must(_libc.unshare(_CLONE_NEWNET))
    _own = _here()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


@contextlib.contextmanager
def machine_network() -> Iterator[None]:
    """What the block starts is in the machine's network."""
    if _machine is None or _own is None:
        yield
        return
    _must(_libc.setns(_machine, _CLONE_NEWNET))
    try:
        yield
    finally:
        _must(_libc.setns(_own, _CLONE_NEWNET))
