# SPDX-License-Identifier: Apache-2.0
"""Compute the digest (checksum) of a set of rows. The digest of a set of rows depends neither on
the order of the rows nor on their division into Arrow batches."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core import digest

_MASK: Final = 2**64 - 1
_NULL: Final = np.uint64(0x9E3779B97F4A7C15)


def of_messages(raw: memoryview, offsets: Any) -> int:
    """Return the sum of the digests of all messages in ``raw``. ``offsets`` (int64) states where
    each message begins and ends in ``raw``."""
    sums = np.zeros(len(offsets) - 1, np.uint64)
    digest.add_column(sums, raw, offsets)
    return _sum(sums)


def of_batch(batch: pa.RecordBatch) -> int:
    """Return the sum of the digests of all rows of an Arrow batch."""
    sums = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        _add(sums, column)
    return _sum(sums)


def _sum(sums: Any) -> int:
    return int(sums.sum(dtype=np.uint64)) & _MASK if len(sums) else 0


def _add(sums: Any, column: Any) -> None:
    """Mixes a column into the digests; a row's digest depends on that row only."""
    kind = column.type
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if pa.types.is_dictionary(kind):
        _add(sums, column.dictionary_decode())
        return
    if pa.types.is_struct(kind) and kind.num_fields > 0:
        for child in column.flatten():
            _add(sums, child)
    else:
        data, offsets = _bytes(column, nulls)
        digest.add_column(sums, data, offsets)
    if nulls is not None:
        sums[nulls] += _NULL


def _bytes(column: Any, nulls: Any) -> tuple[Any, Any]:
    """The column as bytes and their offsets; a null has none, or zeros."""
    kind = column.type
    count = len(column)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = column.cast(pa.large_binary())
        kind = column.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
        column = column.fill_null(b"") if nulls is not None else column
        _validity, bounds, data = column.buffers()
        offsets = np.frombuffer(bounds, np.int64, count + 1, 8 * column.offset)
        return (data if data is not None else b""), offsets
    try:
        width = int(kind.bit_width) // 8
    except ValueError:
        width = 0
    if width:
        start = column.offset * width
        data = np.frombuffer(column.buffers()[1], np.uint8, count * width, start)
        if nulls is not None:
            data = data.copy()
            data.reshape(count, width)[nulls] = 0
        return data, np.arange(count + 1, dtype=np.int64) * width
    texts = [repr(value).encode() for value in column.to_pylist()]      # lists and maps
    return b"".join(texts), np.cumsum([0, *map(len, texts)], dtype=np.int64)
