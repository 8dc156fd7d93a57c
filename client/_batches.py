# SPDX-License-Identifier: Apache-2.0
"""Convert a batch of messages into one block of memory.

``offer_batch`` calls the core once for a whole batch. The core needs the address of the first
message. If all messages of a batch begin at equal distances, the core also needs this distance (the
stride); otherwise, it needs an int64 offset for each message. This module computes the address and
the offsets of NumPy arrays, Arrow arrays and sequences of buffers. The module copies the messages
only if the core cannot read their memory layout. This module uses NumPy or pyarrow only if the
application has already imported it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import attrs

from penstock.core.errors import InvalidArgument

#: Name of the column to send of a RecordBatch or Table with several columns.
PAYLOAD_COLUMN = "payload"


@attrs.frozen(kw_only=True)
class Block:
    """The memory layout of ``count`` messages, which lie in the object ``base``. If ``stride`` is
    above 0, message i begins at byte i * ``stride``. If ``stride`` is 0, message i occupies the
    bytes from ``offsets[i]`` to ``offsets[i + 1]``."""

    base: Any
    count: int
    stride: int = 0
    offsets: Any = None
    longest: int = 0
    """Length of the longest message in bytes."""

    def bounds(self) -> Any:
        """Return the offsets at which the messages begin and end in ``base``. If all messages are
        empty, ``offsets`` is None, and the method returns zeros."""
        return self.offsets if self.offsets is not None else bytes(8 * (self.count + 1))


def as_block(messages: Any) -> Block:
    """Return the memory layout of ``messages`` as a :class:`Block`. Copy the messages only if the
    core cannot read their memory.

    :raises InvalidArgument: the element type or the shape cannot be sent, or an element is null.
    """
    if isinstance(messages, (str, bytes, bytearray)):
        raise InvalidArgument("a batch is a sequence of messages; use offer() for one message")
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(messages, numpy.ndarray):
        return _from_numpy(numpy, messages)
    if "pyarrow" in sys.modules and type(messages).__module__.startswith("pyarrow"):
        return _from_arrow(messages)
    if isinstance(messages, Sequence):
        return _from_sequence(messages)
    raise InvalidArgument(
        f"cannot send a batch from {type(messages).__name__}: give a sequence of bytes, a 2-D "
        "uint8 or structured NumPy array, an Arrow binary array, RecordBatch or Table"
    )


def _from_numpy(numpy: Any, values: Any) -> Block:
    if values.dtype.hasobject:
        raise InvalidArgument("a NumPy batch must not hold Python objects")
    if values.ndim == 2 and values.dtype == numpy.uint8:
        stride = int(values.shape[1])
    elif values.ndim == 1 and values.dtype.kind in "VS":
        stride = int(values.dtype.itemsize)
    else:
        raise InvalidArgument(
            f"a NumPy batch is a 2-D uint8 array or a 1-D structured array, not {values.ndim}-D "
            f"{values.dtype}"
        )
    packed = numpy.ascontiguousarray(values)
    count = int(values.shape[0])
    raw = packed.view(numpy.uint8).reshape(-1) if count and stride else b""
    return Block(base=raw, count=count, stride=stride, longest=stride)


def _from_arrow(values: Any) -> Block:
    import pyarrow as pa

    if isinstance(values, (pa.RecordBatch, pa.Table)):
        values = _payload_column(values)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        raise InvalidArgument(
            "an Arrow batch is a binary or string array, a RecordBatch or a Table, not "
            f"{type(values).__name__}"
        )
    if values.null_count:
        raise InvalidArgument(f"an Arrow batch must not hold nulls: found {values.null_count}")
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        return _from_arrow_fixed(values)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        # Only the offsets are copied, to 64 bits.
        values = values.cast(pa.large_binary() if pa.types.is_binary(kind) else pa.large_string())
        return _from_arrow_offsets(values)
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return _from_arrow_offsets(values)
    raise InvalidArgument(f"an Arrow batch is a binary or string array, not {kind}")


def _payload_column(batch: Any) -> Any:
    if batch.num_columns == 1:
        return batch.column(0)
    if PAYLOAD_COLUMN in batch.schema.names:
        return batch.column(PAYLOAD_COLUMN)
    raise InvalidArgument(
        f"a {type(batch).__name__} must have only one column, or a column {PAYLOAD_COLUMN!r}: "
        f"found {', '.join(batch.schema.names) or 'none'}"
    )


def _from_arrow_fixed(values: Any) -> Block:
    stride = values.type.byte_width
    data = values.buffers()[1]
    start = values.offset * stride
    raw = memoryview(data)[start : start + len(values) * stride] if data is not None else b""
    return Block(base=raw, count=len(values), stride=stride, longest=stride)


def _from_arrow_offsets(values: Any) -> Block:
    _validity, bounds, data = values.buffers()
    count = len(values)
    if count == 0 or bounds is None:
        return Block(base=b"", count=0, offsets=array("q", [0]))
    all_offsets = memoryview(bounds).cast("B").cast("q")
    offsets = all_offsets[values.offset : values.offset + count + 1]
    raw = memoryview(data).cast("B") if data is not None else memoryview(b"")
    return _checked(raw, offsets, count)


def _checked(raw: memoryview, offsets: Any, count: int) -> Block:
    """Check offsets of another library: they must rise and stay inside the data."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        bounds = numpy.asarray(offsets, dtype=numpy.int64)
        steps = numpy.diff(bounds)
        if bounds[0] >= 0 and bounds[-1] <= len(raw) and (steps >= 0).all():
            return Block(base=raw, count=count, offsets=offsets, longest=int(steps.max()))
    longest = 0
    previous = offsets[0]
    if previous < 0:
        raise InvalidArgument(f"batch offsets must not be negative: {previous}")
    for bound in offsets[1:]:
        if bound < previous:
            raise InvalidArgument(f"batch offsets must not fall: {previous} then {bound}")
        longest = max(longest, bound - previous)
        previous = bound
    if previous > len(raw):
        raise InvalidArgument(
            f"the last batch offset is {previous}, but the data has only {len(raw)} bytes"
        )
    return Block(base=raw, count=count, offsets=offsets, longest=longest)


def _from_sequence(messages: Sequence[Any]) -> Block:
    try:
        raw = b"".join(messages)
        lengths = [len(message) for message in messages]
    except TypeError as error:
        raise InvalidArgument(f"a batch must hold bytes-like messages: {error}") from None
    offsets = array("q", accumulate(lengths, initial=0))
    if offsets[-1] != len(raw):
        raise InvalidArgument(
            "each message of a batch must be a buffer whose items are single bytes"
        )
    return Block(
        base=raw, count=len(lengths), offsets=offsets, longest=max(lengths, default=0)
    )


def length_of(data: Any) -> int:
    """Return the length of one message: a buffer, or a list or tuple of buffers."""
    if isinstance(data, Sequence) and not isinstance(data, (bytes, bytearray, memoryview)):
        return sum(memoryview(piece).nbytes for piece in data)
    return memoryview(data).nbytes
