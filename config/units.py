# SPDX-License-Identifier: Apache-2.0
"""Units of sizes and durations in channels and in the configuration file, and functions that write
values in these units."""

from __future__ import annotations

from typing import Final

SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
DURATION_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def write_size(value: int) -> str:
    """Return a number of bytes as text, in the largest unit that divides the number, for example:
    ``64k``."""
    for suffix in ("g", "m", "k"):
        unit = SIZE_UNITS[suffix]
        if value >= unit and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def write_duration(value: int) -> str:
    """Return a number of nanoseconds as text, in the largest unit that divides the number, for
    example: ``5s``."""
    for suffix in ("s", "ms", "us"):
        unit = DURATION_UNITS[suffix]
        if value >= unit and value % unit == 0:
            return f"{value // unit}{suffix}"
    return f"{value}ns"
