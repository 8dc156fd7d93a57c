# SPDX-License-Identifier: Apache-2.0
"""Schemas that are tables themselves: Codecs of typed streams for NumPy records and Arrow record
batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.client._schemas import Codec, as_table, is_table
from penstock.core.errors import InvalidArgument, MessageTooLong

if TYPE_CHECKING:
    import pyarrow as pa


#: Kinds of NumPy types that have a missing value: NaN and NaT.
_HAVE_MISSING: Final = "fcMm"
#: Kinds whose values a stream never changes. A float may be rounded to the float of the schema.
_EXACT: Final = "iubMmSU"


def _changed(made: NDArray[Any], values: NDArray[Any]) -> int | None:
    """Return the index of the first value that a field holds differently."""
    if made.dtype.kind in "SU":
        values = np.asarray(values, made.dtype.kind)        # as wide as the longest value
    elif values.dtype.kind in "Mm" and made.dtype.kind in "Mm":
        missing = np.isnat(values)
        wrong = np.flatnonzero((made.astype(values.dtype) != values) & ~missing)
        return int(wrong[0]) if len(wrong) else None
    wrong = np.flatnonzero(made != values)
    return int(wrong[0]) if len(wrong) else None


class NumpyCodec(Codec):
    """Codec for NumPy records: each message has the bytes of one record, as they are in memory."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        if dtype.hasobject or not dtype.itemsize:
            raise InvalidArgument(
                f"the dtype of a stream must have a fixed number of bytes: {dtype}"
            )
        self.dtype = dtype
        self.name = f"record of {dtype}"

    def encode(self, value: Any) -> bytes:
        return self._array(value).tobytes()

    def decode(self, message: Any) -> Any:
        if memoryview(message).nbytes != self.dtype.itemsize:
            raise self.mismatch(message, f"it would have {self.dtype.itemsize} bytes")
        return np.frombuffer(message, self.dtype)[0].copy()

    def encode_batch(self, values: Any, longest: int) -> Any:
        if is_table(values):
            values = self.rows_of(as_table(values))
        array = np.ascontiguousarray(self._array(values)).reshape(-1)
        return array.view(np.uint8).reshape(len(array), self.dtype.itemsize)

    def _array(self, values: Any) -> NDArray[Any]:
        if isinstance(values, (np.ndarray, np.void)) and values.dtype != self.dtype:
            raise InvalidArgument(f"this stream carries {self.dtype}, not {values.dtype}")
        try:
            return np.asarray(values, self.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"no {self.name}: {error}") from None

    def rows_of(self, table: pa.Table) -> NDArray[Any]:
        names = self.dtype.names
        if names is None:
            made = np.zeros(table.num_rows, self.dtype)
            self._fill(made, table.column(0), self.dtype, table.column_names[0])
            return made
        if missing := [name for name in names if name not in table.column_names]:
            raise InvalidArgument(f"the table lacks columns of {self.dtype}: {', '.join(missing)}")
        made = np.zeros(table.num_rows, self.dtype)
        for name in names:
            self._fill(made[name], table.column(name), self.dtype[name], name)
        return made

    def _fill(self, made: NDArray[Any], column: Any, kind: np.dtype[Any], name: str) -> None:
        """Write a column of a table into a field of records.

        :raises InvalidArgument: the field cannot hold one of the values.
        """
        if column.null_count and kind.base.kind not in _HAVE_MISSING:
            raise InvalidArgument(
                f"column {name} has {column.null_count} missing values, and {kind} cannot hold one"
            )
        try:
            if kind.shape:
                made[...] = np.array(column.to_pylist(), kind.base)
                return
            values = column.to_numpy()
            made[...] = values
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"column {name} does not fit {kind}: {error}") from None
        if kind.kind in _EXACT and (changed := _changed(made, values)) is not None:
            raise InvalidArgument(
                f"column {name} does not fit {kind}: {values[changed]!r} would arrive as "
                f"{made[changed]!r}"
            )

    def to_numpy(self, payloads: Sequence[Any]) -> NDArray[Any]:
        for payload in payloads:
            if payload.nbytes != self.dtype.itemsize:
                raise self.mismatch(payload, f"it would have {self.dtype.itemsize} bytes")
        return np.frombuffer(b"".join(payloads), self.dtype)

    def records(self, data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """Return an array of records that shares the memory of ``data``. ``data`` contains messages
        without space between them."""
        wrong = np.flatnonzero(lengths != self.dtype.itemsize)
        if len(wrong):
            begin = int(lengths[: wrong[0]].sum())
            raise self.mismatch(
                data[begin : begin + int(lengths[wrong[0]])],
                f"it would have {self.dtype.itemsize} bytes",
            )
        return data.view(self.dtype)

    def to_arrow(self, payloads: Sequence[Any]) -> pa.Table:
        return arrow_of(self.to_numpy(payloads))


def arrow_of(records: NDArray[Any]) -> pa.Table:
    """Return records as a table with a column for each field; a plain dtype has one column
    ``value``."""
    import pyarrow as pa

    names = records.dtype.names
    if names is None:
        return pa.table({"value": _column(records)})
    return pa.table({name: _column(records[name]) for name in names})


def _column(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    if values.dtype.names is not None:
        parts = [_column(values[name]) for name in values.dtype.names]
        return pa.StructArray.from_arrays(parts, names=list(values.dtype.names))
    if values.ndim > 1:
        flat = _column(np.ascontiguousarray(values).reshape(-1))
        width = flat_width(values)
        return pa.FixedSizeListArray.from_arrays(flat, width)
    if values.dtype.kind == "V":
        return pa.array(values.tolist(), pa.binary(values.dtype.itemsize))
    return pa.array(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("="), copy=False))


def flat_width(values: NDArray[Any]) -> int:
    """Return how many elements one row of an array has: the product of all dimensions except the
    first."""
    return int(np.prod(values.shape[1:]))


class ArrowCodec(Codec):
    """Codec for record batches of one schema. The codec sends a large record batch as several
    messages."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        for field in schema:
            if pa.types.is_dictionary(field.type):
                raise InvalidArgument(
                    f"column {field.name} is dictionary-encoded, which cannot be sent without its "
                    "dictionary: use its value type"
                )
        self.schema = schema
        self.name = f"record batch of ({', '.join(f'{f.name}: {f.type}' for f in schema)})"

    def encode(self, value: Any) -> Any:
        table = self._table(value)
        if table.num_rows > 0 and len(table.to_batches()) > 1:
            table = table.combine_chunks()
        batches = table.to_batches()
        return batches[0].serialize() if batches else self._empty().serialize()

    def _empty(self) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_pylist([], self.schema)

    def _table(self, values: Any) -> pa.Table:
        import pyarrow as pa

        try:
            table = pa.Table.from_batches([values]) if isinstance(values, pa.RecordBatch) else (
                as_table(values) if is_table(values) else pa.Table.from_pylist(values, self.schema)
            )
            return table.select(self.schema.names).cast(self.schema)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"no {self.name}: {error}") from None

    def decode(self, message: Any) -> Any:
        import pyarrow as pa

        data = message if isinstance(message, bytes) else bytes(message)
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise self.mismatch(message, str(error)) from None
        return batch

    def encode_batch(self, values: Any, longest: int) -> Any:
        if isinstance(values, (list, tuple)) and any(is_table(value) for value in values):
            return [part for value in values for part in self.encode_batch(value, longest)]
        messages: list[Any] = []
        for batch in self._table(values).to_batches():
            messages += self._parts(batch, longest)
        return messages

    def _parts(self, batch: Any, longest: int) -> list[Any]:
        """A batch as messages of at most ``longest`` bytes."""
        message = batch.serialize()
        if message.size <= longest:
            return [message]
        rows = batch.num_rows
        if rows <= 1:
            raise MessageTooLong(
                f"a row of {message.size} bytes exceeds the stream's limit of {longest} bytes"
            )
        parts = min(rows, -(-message.size // longest) + 1)
        step = -(-rows // parts)
        return [
            piece for first in range(0, rows, step)
            for piece in self._parts(batch.slice(first, step), longest)
        ]

    def rows_of(self, table: pa.Table) -> Iterable[Any]:
        yield table

    def to_arrow(self, payloads: Sequence[Any]) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_batches([self.decode(each) for each in payloads], self.schema)
