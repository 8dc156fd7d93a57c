# SPDX-License-Identifier: Apache-2.0
"""Create the *owner* name of a query: the name under which the query reads its consumer groups.
From the owner's name, another process on the same host can find out whether the query is still
alive."""

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

    :param number: distinguishes several readers in the same process.
    """
    host = re.sub(r"\s", "-", socket.gethostname())[:64]
    mark = f".{number}" if number else ""
    pid = os.getpid()
    return f"process {pid} on {host} ({process_started(pid)}/{process_place()}{mark})"


def is_dead(owner: str) -> bool:
    """Return whether ``owner`` names a process of this host that has ended. Return False if the
    process is alive, or if the caller cannot check the process.
    """
    match = _FORM.fullmatch(owner)
    if match is None or match[4].partition(".")[0] != process_place():
        return False
    return process_started(int(match[1])) != match[3]
