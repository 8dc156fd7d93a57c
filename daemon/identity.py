# SPDX-License-Identifier: Apache-2.0
"""Identity of a daemon."""

from __future__ import annotations

import secrets
import time

import penstock
from penstock.daemon.settings import Identity


def version() -> str:
    """Return the version of this penstock package as text."""
    return penstock.__version__


def version_number(text: str) -> int:
    """Convert a version text to the integer for cnc.dat, which combines the major, minor and patch
    number."""
    parts = [int("".join(filter(str.isdigit, part)) or 0) for part in text.split(".")[:3]]
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major << 16 | minor << 8 | patch


def new_identity() -> Identity:
    """Draw a new identity."""
    return Identity(
        daemon_id=secrets.randbits(63) | 1,
        epoch=time.time_ns() // 1_000_000,
        receiver_id_base=secrets.randbits(62) | 1,
        seed=secrets.randbits(63) | 1,
        start_ns=time.monotonic_ns(),
        start_ms=time.time_ns() // 1_000_000,
    )
