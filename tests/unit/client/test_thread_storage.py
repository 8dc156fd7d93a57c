# SPDX-License-Identifier: Apache-2.0
"""What a thread of the application pays for having the extension loaded.

The first thread-local variable that a thread touches makes the loader allocate the whole TLS
segment of the library for that thread, so a large buffer costs every thread that reads an error.
"""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest

MAX_TLS_BYTES = 4096
PT_TLS = 7


def tls_bytes(library: Path) -> int:
    """Size in memory of the TLS segment of a 64-bit little-endian ELF library, 0 without one."""
    data = library.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01", f"{library}: not a 64-bit little-endian ELF file"
    offset, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    total = 0
    for at in range(offset, offset + size * count, size):
        kind, = struct.unpack_from("<I", data, at)
        if kind == PT_TLS:
            memory, = struct.unpack_from("<Q", data, at + 40)
            total += memory
    return int(total)


@pytest.mark.parametrize("module", ["penstock._core", "penstock._fast"])
def test_a_thread_pays_at_most_a_page_of_thread_local_storage(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    assert tls_bytes(Path(spec.origin)) <= MAX_TLS_BYTES


def test_the_reader_of_program_headers_finds_a_tls_segment() -> None:
    spec = importlib.util.find_spec("penstock._core")
    assert spec is not None
    assert spec.origin is not None
    assert tls_bytes(Path(spec.origin)) > 0          # the text of a thread's last error
