# SPDX-License-Identifier: Apache-2.0
"""Find out within a second whether a daemon listens at a socket of its directory."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

_CONNECT_S: Final = 1.0


def refusal(path: Path) -> OSError | None:
    """Return the error with which the kernel refuses a connection to a UNIX socket; None: a process
    listens there, perhaps a busy one."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(_CONNECT_S)
            one.connect(str(path))
    except TimeoutError:
        return None
    except OSError as error:
        return error
    return None
