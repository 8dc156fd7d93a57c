# SPDX-License-Identifier: Apache-2.0
"""Convert messages to Arrow columns for a Spark query.

With ``payload=binary`` each message becomes a row: the column ``value`` has its bytes, and the
other columns describe the message. With ``payload=arrow`` each message must be an Arrow IPC record
batch of the declared schema, or a whole Arrow IPC stream; its rows become the rows of the query.
The decoder omits the markers of a sink, unless the query has the options ``payload=binary`` and
``readCommitted=false``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import pyarrow as pa

from penstock.config import uri
from penstock.core.errors import InvalidArgument, PenstockError
from penstock.spark_bridge._arrow import fingerprint, is_alike, is_fingerprint
from penstock.spark_bridge._options import SourceOptions
from penstock.spark_bridge.markers import RESERVED_VALUE, SCHEMA_VALUE

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
#: As Spark's Kafka source has it; the values are texts, but for the key.
HEADERS: Final = (
    "headers", "array<struct<key:string,value:binary>>",
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
)
#: Types that store the same values in other forms. Payload and declaration may have different types
#: of the same family.
_FAMILIES: Final = (
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    (pa.types.is_timestamp,),
)


_MOST_CONSTANTS: Final = 32      # columns of up to some megabytes


class PayloadError(PenstockError, ValueError):
    """A message does not have the form that the option ``payload`` declares."""


def metadata(options: SourceOptions) -> tuple[tuple[str, str, Any], ...]:
    """The columns that describe a message. Each entry states the column's name, its type in Spark
    and its type in Arrow.
    """
    return (*METADATA, HEADERS) if options.include_headers else METADATA


def ddl(options: SourceOptions) -> str:
    """Return the schema of the query's columns.

    :raises InvalidArgument: the options do not declare the schema.
    """
    others = ", ".join(f"{name} {kind}" for name, kind, _ in metadata(options))
    if options.payload == "binary":
        return f"{VALUE} binary, {others}"
    if options.arrow_schema is None:
        raise InvalidArgument(
            "option arrowSchema is missing: payload=arrow needs the columns of the payload, such "
            "as 'id bigint, name string'; or declare them with .schema(...)"
        )
    if options.include_metadata:
        return f"{options.arrow_schema}, {others}"
    return options.arrow_schema


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """Check that the source has each column of the schema that the user declared for the query.

    :raises InvalidArgument: the source has no such column; the exception's text names this column
        and the source's columns.
    """
    names = [name.lower() for name in schema.fieldNames()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"schema: column {twice[0]} is declared twice")
    if options.payload == "binary":
        known = {VALUE: "binary"} | {name: kind for name, kind, _ in metadata(options)}
        for field in schema.fields:
            if known.get(field.name) != field.dataType.simpleString():
                raise InvalidArgument(
                    f"schema: column {field.name} {field.dataType.simpleString()} is not one of "
                    f"the source's: {', '.join(f'{n} {k}' for n, k in known.items())}"
                )
        return
    if options.include_metadata:
        wanted = [(name, kind) for name, kind, _ in metadata(options)]
        found = [(f.name, f.dataType.simpleString()) for f in schema.fields[-len(wanted):]]
        if found != wanted or len(names) == len(found):
            raise InvalidArgument(
                "schema: with includeMetadata=true the payload's columns are followed by "
                + ", ".join(f"{name} {kind}" for name, kind in wanted)
            )


@attrs.frozen(kw_only=True)
class Messages:
    """Messages of one session, as arrays that all have the same length."""

    value: Any               # pa.BinaryArray
    positions: Any           # np.ndarray of int64: after each message
    reserved_values: Any     # np.ndarray of int64
    channel: str
    stream_id: int
    session_id: int
    host: str
    time_positions: Any      # np.ndarray of int64, ascending
    times_us: Any            # np.ndarray of int64
    key: bytes = b""         # of a sink's session
    stamps_us: Any = None    # np.ndarray of int64: what the messages carry; below 0: nothing


class Constants:
    """Cache of columns with a constant value. The creation of a new column is slow; a slice of a
    cached column is fast."""

    def __init__(self) -> None:
        self._columns: dict[tuple[Any, Any], Any] = {}

    def column(self, value: Any, kind: Any, length: int) -> Any:
        known = self._columns.get((value, kind))
        if known is None or len(known) < length:
            if len(self._columns) >= _MOST_CONSTANTS:
                self._columns.clear()
            known = pa.repeat(pa.scalar(value, kind), max(length, 1024))
            self._columns[(value, kind)] = known
        return known.slice(0, length)


@functools.cache
def _constants() -> Constants:
    """Return the cache of this process: a worker reads the same streams in one task after
    another."""
    return Constants()


class Decoder:
    """Converts messages to record batches of one schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._arrow = options.payload == "arrow"
        self._hide = self._arrow or options.read_committed is not False
        self.schema = to_arrow_schema(schema, timezone="UTC")
        payload_columns = len(self.schema)
        if options.include_metadata:
            payload_columns -= len(metadata(options))
        self._payload = pa.schema([self.schema.field(n) for n in range(payload_columns)])
        self._metadata = self.schema.names[payload_columns if self._arrow else 0 :]
        self._fingerprint = fingerprint(self._payload)
        self._constants = _constants()

    def decode(self, messages: Messages) -> Iterator[Any]:
        """Convert messages to record batches.

        :raises PayloadError: a message does not have the form that the option ``payload`` declares.
        """
        if self._hide:
            messages = _without_markers(messages)
        if "timestamp" in self._metadata:
            messages = _with_stamps(messages)
        if not self._arrow:
            columns = [self._column(name, messages) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            return
        for index in range(len(messages.value)):
            if messages.reserved_values[index] == SCHEMA_VALUE:
                self._check_sent(messages, index)
            else:
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
        if name == HEADERS[0]:
            return _headers(messages).cast(self.schema.field(name).type)
        value = getattr(messages, name)
        kind = pa.string() if isinstance(value, str) else pa.int32()
        return self._constants.column(value, kind, count)

    # ---- payload=arrow ---------------------------------------------------------------------------

    def _check_sent(self, messages: Messages, index: int) -> None:
        """The schema that a sink sent before its batches."""
        where = _where(messages, index)
        try:
            found = pa.ipc.read_schema(messages.value[index].as_buffer())
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise PayloadError(f"{where}: is no Arrow schema ({error})") from None
        if fingerprint(found) != self._fingerprint:
            raise self._differs(where, found)

    def _batch(self, messages: Messages, index: int) -> Any:
        where = _where(messages, index)
        mark = int(messages.reserved_values[index])
        if is_fingerprint(mark) and mark != self._fingerprint:
            raise PayloadError(
                f"{where}: the schema of the batch is not the one that option arrowSchema "
                f"declares ({_shown(self._payload)}). Declare the names and types of the columns "
                "in the order in which the publisher sends them"
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
            stamps_us=(
                None if messages.stamps_us is None
                else np.repeat(messages.stamps_us[index : index + 1], count)
            ),
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
            _is_convertible(theirs.type, mine.type)
            for mine, theirs in zip(self._payload, found, strict=True)
        )
        if not same:
            raise self._differs(where, found)

    def _differs(self, where: str, found: Any) -> PayloadError:
        return PayloadError(
            f"{where}: its columns are {_shown(found)}, but option arrowSchema declares "
            f"{_shown(self._payload)}: declare what is sent"
        )


def _is_convertible(sent: Any, declared: Any) -> bool:
    """Return whether all values of one type are values of the other."""
    if pa.types.is_dictionary(sent):
        sent = sent.value_type
    return is_alike(sent, declared) or any(
        any(each(sent) for each in family) and any(each(declared) for each in family)
        for family in _FAMILIES
    )


def _where(messages: Messages, index: int) -> str:
    return (
        f"message at position {int(messages.positions[index])} of {messages.channel} stream "
        f"{messages.stream_id}, session {messages.session_id}"
    )


def _without_markers(messages: Messages) -> Messages:
    """Most batches have none, and stay as they are."""
    rows = messages.reserved_values != RESERVED_VALUE
    if rows.all():
        return messages
    return attrs.evolve(
        messages, value=messages.value.filter(pa.array(rows)),
        positions=messages.positions[rows], reserved_values=messages.reserved_values[rows],
    )


def _shown(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _headers(messages: Messages) -> Any:
    """A list for each row: the reserved value, the session, the stream and, where there is one, the
    key."""
    count = len(messages.positions)
    same = {"session_id": b"%d" % messages.session_id, "stream_id": b"%d" % messages.stream_id}
    if messages.key:
        same["key"] = messages.key
    width = 1 + len(same)
    reserved = pa.array(messages.reserved_values).cast(pa.string()).cast(pa.binary())
    pool = pa.concat_arrays([reserved, pa.array(list(same.values()), pa.binary())])
    places = np.empty((count, width), np.int64)
    places[:, 0] = np.arange(count)
    places[:, 1:] = count + np.arange(len(same))
    names = pa.array(["reserved_value", *same], pa.string())
    turns = pa.array(np.tile(np.arange(width), count))
    entries = pa.StructArray.from_arrays(
        [names.take(turns), pool.take(pa.array(places.ravel()))], names=["key", "value"]
    )
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(ends, entries)


@functools.cache
def stamp_offset(channel: str) -> int | None:
    """Return where the messages of a channel contain a time stamp: an offset in the payload, or
    ``RESERVED_VALUE_OFFSET``. Return None if the channel writes no time stamps. If the channel
    writes both a time of sending and a time of reception, return where the time of reception is."""
    found = uri.parse(channel)
    for offset in (
        found.media_rcv_ts_offset, found.channel_rcv_ts_offset, found.channel_snd_ts_offset
    ):
        if offset is not None:
            return offset
    return None


def _with_stamps(messages: Messages) -> Messages:
    """The messages with the times that they carry: nanoseconds since 1970, as Aeron writes them."""
    offset = stamp_offset(messages.channel)
    if offset is None:
        return messages
    if offset == uri.RESERVED_VALUE_OFFSET:
        return attrs.evolve(messages, stamps_us=messages.reserved_values // 1000)
    count = len(messages.positions)
    found = np.full(count, -1, np.int64)
    _validity, bounds, data = messages.value.buffers()
    if count and data is not None:
        edges = np.frombuffer(bounds, np.int32, count + 1, 4 * messages.value.offset)
        places = edges[:-1].astype(np.int64) + offset
        has = places + 8 <= edges[1:]
        raw = np.frombuffer(data, np.uint8)[places[has, None] + np.arange(8)]
        found[has] = np.ascontiguousarray(raw).view("<i8")[:, 0] // 1000
    return attrs.evolve(messages, stamps_us=found)


def _timestamps(messages: Messages) -> Any:
    """What a message carries, else what the plan says; a message without either has none."""
    kind = pa.timestamp("us", tz="UTC")
    count = len(messages.positions)
    if len(messages.times_us):
        # Entries are fewer than messages: find the last message of each entry. The last entry also
        # has all further messages.
        ends = np.searchsorted(messages.positions, messages.time_positions, side="right")
        ends[-1] = count
        times = np.repeat(messages.times_us, np.diff(ends, prepend=0))
        known = None
    else:
        times, known = np.zeros(count, np.int64), np.zeros(count, bool)
    if messages.stamps_us is not None:
        carried = messages.stamps_us > 0
        times = np.where(carried, messages.stamps_us, times)
        known = None if known is None else known | carried
    if known is not None and not known.all():
        return pa.array(times, pa.int64(), mask=~known).cast(kind)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(times)])
