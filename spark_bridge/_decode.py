# SPDX-License-Identifier: Apache-2.0
"""From messages to the columns of a query.

With ``payload=binary`` a message is a row: its bytes in ``value`` beside what is known of it. With
``payload=arrow`` each message is an Arrow IPC record batch of the declared schema, alone or as a
whole IPC stream. The decoder returns its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import pyarrow as pa

from penstock.core.errors import InvalidArgument, PenstockError
from penstock.spark_bridge._options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VALUE: Final = "value"
#: Name, Spark's type, Arrow's type.
METADATA: Final = (
    ("channel", "string", pa.string()),
    ("stream_id", "int", pa.int32()),
    ("session_id", "int", pa.int32()),
    ("position", "bigint", pa.int64()),
    ("timestamp", "timestamp", pa.timestamp("us", tz="UTC")),
    ("reserved_value", "bigint", pa.int64()),
    ("host", "string", pa.string()),
)
_BINARY: Final = ((VALUE, "binary", pa.binary()), *METADATA)
_METADATA_DDL: Final = ", ".join(f"{name} {kind}" for name, kind, _ in METADATA)
#: What may differ between a payload and the declaration: the same values, stored otherwise.
_LOOSE: Final = (
    pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_string_view,
    pa.types.is_binary_view, pa.types.is_timestamp, pa.types.is_dictionary,
)


class PayloadError(PenstockError, ValueError):
    """A message is not what option payload says."""


def ddl(options: SourceOptions) -> str:
    """The schema of the query, as the source knows it.

    :raises InvalidArgument: it has to be declared.
    """
    if options.payload == "binary":
        return ", ".join(f"{name} {kind}" for name, kind, _ in _BINARY)
    if options.arrow_schema is None:
        raise InvalidArgument(
            "option arrowSchema is missing: payload=arrow needs the columns of the payload, such "
            "as 'id bigint, name string'; or declare them with .schema(...)"
        )
    if options.include_metadata:
        return f"{options.arrow_schema}, {_METADATA_DDL}"
    return options.arrow_schema


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """Whether the source can give these columns.

    :raises InvalidArgument: names the column, and what there is.
    """
    names = [name.lower() for name in schema.fieldNames()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"schema: column {twice[0]} is there twice")
    if options.payload == "binary":
        known = {name: kind for name, kind, _ in _BINARY}
        for field in schema.fields:
            if known.get(field.name) != field.dataType.simpleString():
                raise InvalidArgument(
                    f"schema: column {field.name} {field.dataType.simpleString()} is not one of "
                    f"the source's: {', '.join(f'{n} {k}' for n, k in known.items())}"
                )
        return
    if options.include_metadata:
        found = [(f.name, f.dataType.simpleString()) for f in schema.fields[-len(METADATA):]]
        if found != [(name, kind) for name, kind, _ in METADATA] or len(names) == len(found):
            raise InvalidArgument(
                "schema: with includeMetadata=true the payload's columns are followed by "
                f"{_METADATA_DDL}"
            )


@attrs.frozen(kw_only=True)
class Messages:
    """A stretch of one session as arrays of one length."""

    value: Any               # pa.BinaryArray
    positions: Any           # np.ndarray of int64: after each message
    reserved_values: Any     # np.ndarray of int64
    channel: str
    stream_id: int
    session_id: int
    host: str
    time_positions: Any      # np.ndarray of int64, ascending
    times_us: Any            # np.ndarray of int64


class Constants:
    """Columns of one value.  Making one is slow, cutting one to length is free: they are kept."""

    def __init__(self) -> None:
        self._columns: dict[tuple[Any, Any], Any] = {}

    def column(self, value: Any, kind: Any, length: int) -> Any:
        known = self._columns.get((value, kind))
        if known is None or len(known) < length:
            if len(self._columns) > 64:
                self._columns.clear()
            known = pa.repeat(pa.scalar(value, kind), max(length, 1024))
            self._columns[(value, kind)] = known
        return known.slice(0, length)


class Decoder:
    """Makes record batches of one schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._arrow = options.payload == "arrow"
        self.schema = to_arrow_schema(schema, timezone="UTC")
        payload_columns = len(self.schema)
        if options.include_metadata:
            payload_columns -= len(METADATA)
        self._payload = pa.schema([self.schema.field(n) for n in range(payload_columns)])
        self._metadata = self.schema.names[payload_columns:]
        self._constants = Constants()

    def decode(self, messages: Messages) -> Iterator[Any]:
        """The messages as record batches.

        :raises PayloadError: a message is not what was declared.
        """
        if not self._arrow:
            columns = [self._column(name, messages) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            return
        for index in range(len(messages.value)):
            yield self._batch(messages, index)

    def _column(self, name: str, messages: Messages) -> Any:
        count = len(messages.positions)
        if name == VALUE:
            return messages.value
        if name == "position":
            return pa.array(messages.positions)
        if name == "reserved_value":
            return pa.array(messages.reserved_values)
        if name == "timestamp":
            return _timestamps(messages)
        value = getattr(messages, name)
        kind = pa.string() if isinstance(value, str) else pa.int32()
        return self._constants.column(value, kind, count)

    # ---- payload=arrow ---------------------------------------------------------------------------

    def _batch(self, messages: Messages, index: int) -> Any:
        where = (
            f"message at position {int(messages.positions[index])} of {messages.channel} stream "
            f"{messages.stream_id}, session {messages.session_id}"
        )
        try:
            columns = self._payload_columns(messages.value[index].as_buffer(), where)
        except PayloadError:
            raise
        except (pa.ArrowException, OSError, EOFError, LookupError, ValueError) as error:
            raise PayloadError(
                f"{where}: is no Arrow IPC record batch ({error}): read it with payload=binary, or "
                "send record batches"
            ) from None
        count = len(columns[0]) if columns else 0
        one = attrs.evolve(
            messages,
            positions=np.repeat(messages.positions[index : index + 1], count),
            reserved_values=np.repeat(messages.reserved_values[index : index + 1], count),
        )
        columns += [self._column(name, one) for name in self._metadata]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _payload_columns(self, payload: Any, where: str) -> list[Any]:
        head = pa.ipc.read_message(payload)
        if head.type == "schema":
            table = pa.ipc.open_stream(payload).read_all()
            self._check(table.schema, where)
            batches = table.combine_chunks().to_batches()
            batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
        else:
            batch = pa.ipc.read_record_batch(head, self._payload)
        batch.validate(full=True)
        return [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._payload, strict=True)
        ]

    def _check(self, found: Any, where: str) -> None:
        same = found.names == self._payload.names and all(
            mine.type == theirs.type or any(
                loose(theirs.type) for loose in _LOOSE
            ) for mine, theirs in zip(self._payload, found, strict=True)
        )
        if not same:
            raise PayloadError(
                f"{where}: its columns are {_shown(found)}, but option arrowSchema declares "
                f"{_shown(self._payload)}: declare what is sent"
            )


def _shown(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _timestamps(messages: Messages) -> Any:
    kind = pa.timestamp("us", tz="UTC")
    if len(messages.times_us) == 0:
        return pa.nulls(len(messages.positions), kind)
    found = np.searchsorted(messages.time_positions, messages.positions, side="left")
    np.minimum(found, len(messages.times_us) - 1, out=found)
    times = messages.times_us[found]
    return pa.Array.from_buffers(kind, len(times), [None, pa.py_buffer(times)])
