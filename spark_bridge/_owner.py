# SPDX-License-Identifier: Apache-2.0
"""The name under which a query reads its groups, by which another process of the same host can see
whether the query still lives."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
from pathlib import Path
from typing import Final

_FORM: Final = re.compile(r"process (\d+) on (\S+) \((\d+)/(\S+)\)")
_START_FIELD: Final = 21        # of /proc/PID/stat, from 0


def token(number: int = 0) -> str:
    """Return the name of this process as a reader: the same for as long as it lives.

    :param number: tells several readers of one process apart.
    """
    host = re.sub(r"\s", "-", socket.gethostname())[:64]
    mark = f".{number}" if number else ""
    return f"process {os.getpid()} on {host} ({_started(os.getpid())}/{_place()}{mark})"


def is_dead(owner: str) -> bool:
    """Whether the reader was a process of this host that has ended; False: it lives, or no one can
    tell from here."""
    match = _FORM.fullmatch(owner)
    if match is None or match[4].partition(".")[0] != _place():
        return False
    return _started(int(match[1])) != match[3]


def _started(pid: int) -> str:
    """When a process of this host started, in ticks; 0: it is not there."""
    with contextlib.suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return text.rpartition(")")[2].split()[_START_FIELD - 2]
    return "0"


@functools.cache
def _place() -> str:
    """The boot of this host, and the namespace that its process ids belong to."""
    boot = namespace = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    with contextlib.suppress(OSError):
        namespace = re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    return f"{boot}-{namespace}"
