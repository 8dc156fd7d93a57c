# SPDX-License-Identifier: Apache-2.0
"""Identify processes of this host by process id and start time, because the kernel reuses process
ids."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_STARTED_FIELD: Final = 19              # of /proc/PID/stat, counted behind the name


def process_started(pid: int) -> int:
    """Return the start time of the process ``pid`` in kernel ticks. Return 0 if the process has
    ended, or is not visible (for example in another PID namespace)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    behind_name = text.rpartition(")")[2].split()
    if len(behind_name) <= _STARTED_FIELD or behind_name[0] in ("Z", "X"):
        return 0
    return int(behind_name[_STARTED_FIELD])
