# SPDX-License-Identifier: Apache-2.0
"""Columns from messages."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge._arrow import fingerprint
from penstock.spark_bridge._decode import (
    Constants,
    Decoder,
    Messages,
    PayloadError,
    check_schema,
    ddl,
)
from penstock.spark_bridge._options import SourceOptions, StreamName
from penstock.spark_bridge.markers import RESERVED_VALUE, SCHEMA_VALUE

OPTIONS = SourceOptions(
    streams=(StreamName(channel="aeron:ipc", stream_id=7),), subscription="s"
)
ARROW = attrs.evolve(OPTIONS, payload="arrow", arrow_schema="id bigint, name string")
ROW = StructType([StructField("id", LongType()), StructField("name", StringType())])
METADATA = [
    StructField("channel", StringType()), StructField("stream_id", IntegerType()),
    StructField("session_id", IntegerType()), StructField("position", LongType()),
    StructField("timestamp", TimestampType()), StructField("reserved_value", LongType()),
    StructField("host", StringType()),
]


def messages(*payloads: bytes) -> Messages:
    count = len(payloads)
    return Messages(
        value=pa.array(payloads, pa.binary()),
        positions=np.arange(1, count + 1, dtype=np.int64) * 64,
        reserved_values=np.arange(count, dtype=np.int64),
        channel="aeron:ipc", stream_id=7, session_id=-9, host="here",
        time_positions=np.array([64, 256], np.int64), times_us=np.array([1000, 2000], np.int64),
    )


def ipc(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_a_message_is_a_row_with_what_is_known_of_it() -> None:
    schema = StructType([StructField("value", BinaryType()), *METADATA])
    check_schema(OPTIONS, schema)
    (batch,) = Decoder(OPTIONS, schema).decode(messages(b"a", b"", b"ccc"))
    rows = batch.to_pylist()
    assert [row["value"] for row in rows] == [b"a", b"", b"ccc"]
    assert [row["position"] for row in rows] == [64, 128, 192]
    assert [row["timestamp"].microsecond for row in rows] == [1000, 2000, 2000]
    assert {(r["channel"], r["stream_id"], r["session_id"], r["host"]) for r in rows} == {
        ("aeron:ipc", 7, -9, "here")
    }


_places = st.lists(st.integers(1, 60), min_size=1, max_size=12, unique=True).map(sorted)


@given(rows=_places, entries=_places)
def test_a_message_has_the_time_of_the_first_entry_that_is_not_before_it(
    rows: list[int], entries: list[int]
) -> None:
    one = attrs.evolve(
        messages(*[b"" for _ in rows]), positions=np.array(rows, np.int64),
        time_positions=np.array(entries, np.int64), times_us=np.array(entries, np.int64) * 10,
    )
    schema = StructType([StructField("timestamp", TimestampType())])
    (batch,) = Decoder(OPTIONS, schema).decode(one)
    assert batch.column(0).cast(pa.int64()).to_pylist() == [
        10 * next((entry for entry in entries if entry >= row), entries[-1]) for row in rows
    ]


@pytest.mark.parametrize("where", ["reserved", "8"])
@pytest.mark.parametrize("name", ["media-rcv-ts-offset", "channel-rcv-ts-offset",
                                  "channel-snd-ts-offset"])
def test_a_time_that_messages_carry_is_exact(where: str, name: str) -> None:
    """Those too short for one have that of the plan."""
    stamps = np.array([5_000_001_999, 6_000_000_000, 7_000_000_000], np.int64)
    if where == "reserved":
        given = attrs.evolve(messages(b"a", b"b", b"c"), reserved_values=stamps)
    else:
        given = messages(*(b"8 bytes." + stamp.tobytes() + b"x" for stamp in stamps))
        given = attrs.evolve(given, value=pa.concat_arrays([given.value[:2], pa.array([b"short"])]))
    given = attrs.evolve(given, channel=f"aeron:udp?endpoint=1.2.3.4:5|{name}={where}")
    schema = StructType([METADATA[4]])
    (batch,) = Decoder(OPTIONS, schema).decode(given)
    found = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert found == [5_000_001, 6_000_000, 7_000_000 if where == "reserved" else 2000]
    unplanned = attrs.evolve(given, times_us=np.array([], np.int64))
    (batch,) = Decoder(OPTIONS, schema).decode(unplanned)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        *found[:2], 7_000_000 if where == "reserved" else None
    ]


def test_rows_of_an_arrow_message_have_its_time() -> None:
    options = attrs.evolve(ARROW, include_metadata=True)
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["a", "b"]})
    given = attrs.evolve(
        messages(ipc(batch)), reserved_values=np.array([9_000_000], np.int64),
        channel="aeron:ipc?media-rcv-ts-offset=reserved",
    )
    decoder = Decoder(options, StructType([*ROW.fields, *METADATA]))
    (rows,) = decoder.decode(given)
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [9000, 9000]


@pytest.mark.parametrize("key", [b"", b"IBM"])
def test_headers_are_those_of_kafkas_source(key: bytes) -> None:
    options = attrs.evolve(OPTIONS, include_headers=True)
    assert ddl(options).endswith(", host string, headers array<struct<key:string,value:binary>>")
    kind = ArrayType(StructType([
        StructField("key", StringType()), StructField("value", BinaryType()),
    ]))
    schema = StructType([StructField("headers", kind), METADATA[3]])
    check_schema(options, schema)
    (batch,) = Decoder(options, schema).decode(attrs.evolve(messages(b"a", b"b"), key=key))
    tail = [{"key": "key", "value": key}] if key else []
    assert batch.column("headers").to_pylist() == [
        [{"key": "reserved_value", "value": b"%d" % number},
         {"key": "session_id", "value": b"-9"}, {"key": "stream_id", "value": b"7"}, *tail]
        for number in range(2)
    ]
    with pytest.raises(InvalidArgument, match="column headers"):
        check_schema(OPTIONS, schema)


def test_headers_have_each_reserved_value_exactly() -> None:
    values = [0, 1, -1, 2**63 - 1, -(2**63), 10**18, -(10**18)]
    options = attrs.evolve(OPTIONS, include_headers=True)
    kind = ArrayType(StructType([
        StructField("key", StringType()), StructField("value", BinaryType()),
    ]))
    schema = StructType([
        StructField("headers", kind), StructField("reserved_value", LongType()),
    ])
    (batch,) = Decoder(options, schema).decode(attrs.evolve(
        messages(*[b"m"] * len(values)), reserved_values=np.array(values, np.int64)
    ))
    found = [dict(map(dict.values, row)) for row in batch.column("headers").to_pylist()]
    assert [int(row["reserved_value"]) for row in found] == values
    assert batch.column("reserved_value").to_pylist() == values


def test_markers_are_hidden_unless_all_messages_are_read() -> None:
    given = attrs.evolve(
        messages(b"begin", b"a", b"commit"),
        reserved_values=np.array([RESERVED_VALUE, 0, RESERVED_VALUE], np.int64),
    )
    schema = StructType([StructField("value", BinaryType()), METADATA[3]])
    for committed, rows in ((None, [(b"a", 128)]), (True, [(b"a", 128)]),
                            (False, [(b"begin", 64), (b"a", 128), (b"commit", 192)])):
        options = attrs.evolve(OPTIONS, read_committed=committed)
        (batch,) = Decoder(options, schema).decode(given)
        assert [(row["value"], row["position"]) for row in batch.to_pylist()] == rows


def test_a_sinks_schema_and_fingerprint_are_compared_with_the_declared_ones() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["a", "b"]})
    sent = attrs.evolve(
        messages(b"marker", batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()),
        reserved_values=np.array(
            [RESERVED_VALUE, SCHEMA_VALUE, fingerprint(batch.schema)], np.int64
        ),
    )
    (rows,) = Decoder(ARROW, ROW).decode(sent)
    assert rows.to_pylist() == batch.to_pylist()
    wrong = StructType([StructField("id", DoubleType()), StructField("name", StringType())])
    with pytest.raises(PayloadError, match=r"columns are id int64, .* declares id double"):
        list(Decoder(ARROW, wrong).decode(sent))
    middle = attrs.evolve(      # of a part
        sent, value=sent.value[2:], positions=sent.positions[2:],
        reserved_values=sent.reserved_values[2:],
    )
    with pytest.raises(PayloadError, match="not the one that option arrowSchema declares"):
        list(Decoder(ARROW, wrong).decode(middle))


def test_only_the_columns_that_were_requested_in_their_order() -> None:
    schema = StructType([METADATA[3], StructField("value", BinaryType())])
    (batch,) = Decoder(OPTIONS, schema).decode(messages(b"a"))
    assert batch.schema.names == ["position", "value"]
    nothing = attrs.evolve(messages(b"a"), times_us=np.array([], np.int64))
    (batch,) = Decoder(OPTIONS, StructType([METADATA[4]])).decode(nothing)
    assert batch.to_pylist() == [{"timestamp": None}]
    newer = attrs.evolve(
        messages(b"a", b"b", b"c"), time_positions=np.array([64, 128], np.int64)
    )
    (batch,) = Decoder(OPTIONS, StructType([METADATA[4]])).decode(newer)
    # Nobody knows yet when the last one came: not before the newest that is known.
    assert [row["timestamp"].microsecond for row in batch.to_pylist()] == [1000, 2000, 2000]


@pytest.mark.parametrize("wrap", [ipc, lambda batch: bytes(batch.serialize())])
def test_arrow_messages_become_their_rows(wrap: Any) -> None:
    options = attrs.evolve(ARROW, include_metadata=True)
    schema = StructType([*ROW.fields, *METADATA])
    check_schema(options, schema)
    first = pa.record_batch({"id": [1, 2], "name": ["x", None]})
    empty = first.slice(0, 0)
    batches = list(Decoder(options, schema).decode(messages(wrap(first), wrap(empty))))
    assert [batch.num_rows for batch in batches] == [2, 0]
    assert batches[0].to_pylist()[1]["id"] == 2
    assert batches[0].column("position").to_pylist() == [64, 64]


def test_the_same_values_stored_otherwise_are_taken() -> None:
    batch = pa.record_batch({
        "id": pa.array([1]), "name": pa.array(["x"], pa.large_string())
    })
    (decoded,) = Decoder(ARROW, ROW).decode(messages(ipc(batch)))
    assert decoded.schema.field("name").type == pa.string()


_NESTED = {
    "xs": (ArrayType(LongType()), pa.list_(pa.field("item", pa.int64(), nullable=False)), [1, 2]),
    "s": (StructType([StructField("a", LongType())]),
          pa.struct([pa.field("a", pa.int64(), nullable=False)]), {"a": 3}),
    "m": (MapType(StringType(), LongType()),
          pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [("k", 4)]),
}


@pytest.mark.parametrize("name", _NESTED)
def test_elements_that_cannot_be_null_are_taken(name: str) -> None:
    """Spark's functions make such types, and a declaration in DDL has others."""
    declared, kind, value = _NESTED[name]
    decoder = Decoder(ARROW, StructType([StructField(name, declared)]))
    mine = decoder.schema
    batch = pa.record_batch([pa.array([value], kind)], names=[name])
    (decoded,) = decoder.decode(messages(ipc(batch)))
    assert (decoded.schema, decoded.to_pylist()) == (decoder.schema, [{name: value}])
    if name == "xs":
        kind = pa.list_(pa.field("element", pa.int64(), nullable=False))    # as Spark names it
    sent = pa.schema([(name, kind)])
    assert fingerprint(sent) == fingerprint(mine)
    for other in (pa.list_(pa.float64()), pa.struct([("a", pa.float64())]), pa.int64()):
        wrong = pa.record_batch([pa.array([None], other)], names=[name])
        with pytest.raises(PayloadError, match="but option arrowSchema declares"):
            list(decoder.decode(messages(ipc(wrong))))
        assert fingerprint(wrong.schema) != fingerprint(mine)


@pytest.mark.parametrize("kind", [
    pa.timestamp("us"), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(),
])
def test_a_type_of_another_family_is_refused(kind: Any) -> None:
    batch = pa.record_batch({"id": pa.array([None], kind), "name": pa.array(["x"])})
    with pytest.raises(PayloadError, match="but option arrowSchema declares id int64"):
        list(Decoder(ARROW, ROW).decode(messages(ipc(batch))))


@pytest.mark.parametrize(("payload", "words"), [
    (b"hello", "no Arrow IPC record batch"),
    (b"", "no Arrow IPC record batch"),
    (ipc(pa.record_batch({"id": [1]})), r"its columns are id int64, but option arrowSchema"),
    (ipc(pa.record_batch({"id": ["1"], "name": ["x"]})), r"columns are id string, name string"),
    (ipc(pa.record_batch({"name": ["x"], "id": [1]})), r"columns are name string, id int64"),
    (ipc(pa.record_batch({"id": [1], "name": ["x"]}))[:-40], "no Arrow IPC record batch"),
])
def test_other_payloads_are_refused_with_their_position(payload: bytes, words: str) -> None:
    with pytest.raises(PayloadError, match=words) as caught:
        list(Decoder(ARROW, ROW).decode(messages(payload)))
    assert "position 64" in str(caught.value)


def test_damaged_batches_do_not_get_through() -> None:
    good = ipc(pa.record_batch({"id": [1, 2, 3], "name": ["abc", "", "d"]}))
    decoder = Decoder(ARROW, ROW)
    for at in range(0, len(good), 3):
        damaged = good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
        try:
            for batch in decoder.decode(messages(damaged)):
                batch.validate(full=True)
        except PayloadError:
            pass


def test_schemas_that_cannot_be_given_are_refused() -> None:
    for fields, words in (
        ([StructField("value", StringType())], "column value string is not one of"),
        ([StructField("key", BinaryType())], "column key binary is not one of"),
        ([METADATA[0], METADATA[0]], "channel is declared twice"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            check_schema(OPTIONS, StructType(fields))
    with pytest.raises(InvalidArgument, match="includeMetadata"):
        check_schema(attrs.evolve(ARROW, include_metadata=True), ROW)
    with pytest.raises(InvalidArgument, match="arrowSchema is missing"):
        ddl(attrs.evolve(ARROW, arrow_schema=None))
    whole = ddl(attrs.evolve(ARROW, include_metadata=True))
    assert whole.startswith("id bigint, name string, channel string")


def test_constants_are_made_once_and_grow() -> None:
    constants = Constants()
    few = constants.column("x", pa.string(), 3)
    assert few.to_pylist() == ["x"] * 3
    assert len(constants.column("x", pa.string(), 5000)) == 5000


def test_the_next_task_of_a_worker_uses_the_same_constants() -> None:
    schema = StructType([StructField("channel", StringType())])
    first, second = (
        next(iter(Decoder(OPTIONS, schema).decode(messages(b"a")))) for _ in range(2)
    )
    assert first.column(0).buffers()[2].address == second.column(0).buffers()[2].address
