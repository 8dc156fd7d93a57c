# SPDX-License-Identifier: Apache-2.0
"""Digests of rows. Equal digests show that two sets contain the same rows (``ps_digest.h``)."""

from __future__ import annotations

from typing import Any

from penstock.core._lib import CORE, ffi, lib


def add_column(digests: Any, data: Any, offsets: Any) -> None:
    """Update the digests of a table's rows with one column of the table; call this function once
    for each column.

    :param digests: writable buffer with one uint64 for each row; the caller sets it to zeros before
        the first column.
    :param data: buffer with the bytes of all rows.
    :param offsets: buffer of int64, one more than there are rows: row ``i`` has the bytes from
        ``offsets[i]`` up to ``offsets[i + 1]``.
    :raises InvalidArgument: an offset decreases or lies outside of the data.
    """
    out = ffi.from_buffer("uint64_t[]", digests, require_writable=True)
    edges = ffi.from_buffer("int64_t[]", offsets)
    values = ffi.from_buffer("uint8_t[]", data)
    count = min(len(out), len(edges) - 1)
    CORE.check(lib.ps_digest_rows(values, len(values), edges, count, out), "digest of rows")
