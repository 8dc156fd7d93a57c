# SPDX-License-Identifier: Apache-2.0
"""Messages that are a function of (seed, size limits); ``Messages.java`` makes the same ones.

For each message a splitmix64 word gives the size, then words in little-endian order give the bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator

_MASK = 2**64 - 1


def _words(seed: int) -> Iterator[int]:
    state = seed & _MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        yield z ^ (z >> 31)


def messages(*, seed: int, sizes: str, count: int) -> Iterator[bytes]:
    """``count`` messages of ``sizes`` bytes, "LOW-HIGH" or one number."""
    low, _, high = sizes.partition("-")
    span = int(high or low) - int(low) + 1
    words = _words(seed)
    for _ in range(count):
        size = int(low) + next(words) % span
        needed = (size + 7) // 8
        yield struct.pack(f"<{needed}Q", *(next(words) for _ in range(needed)))[:size]


def digest(payloads: Iterable[bytes]) -> str:
    """SHA-256 over messages, each after its length as four little-endian bytes."""
    sha = hashlib.sha256()
    for payload in payloads:
        sha.update(struct.pack("<I", len(payload)))
        sha.update(payload)
    return sha.hexdigest()
