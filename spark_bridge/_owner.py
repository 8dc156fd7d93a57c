# SPDX-License-Identifier: Apache-2.0
"""The name under which a query reads its consumer groups (their owner). From this name, another
process of the same host can find out whether the query is still alive."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from penstock.client._members import process_place, process_started

_FORM: Final = re.compile(r"process (\d+) on (\S+) \((\d+)/(\S+)\)")


def token(number: int = 0) -> str:
    """Return the name under which this process reads consumer groups. The name does not change
    while the process lives.

    :param number: distinguishes several readers of one process.
    """
    host = re.sub(r"\s", "-", socket.gethostname())[:64]
    mark = f".{number}" if number else ""
    pid = os.getpid()
    return f"process {pid} on {host} ({process_started(pid)}/{process_place()}{mark})"


def is_dead(owner: str) -> bool:
    """Whether the reader was a process of this host that has ended; False if it is alive, or if
    this process cannot find out."""
    match = _FORM.fullmatch(owner)
    if match is None or match[4].partition(".")[0] != process_place():
        return False
    return process_started(int(match[1])) != match[3]
