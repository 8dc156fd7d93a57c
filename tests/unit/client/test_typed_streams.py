# SPDX-License-Identifier: Apache-2.0
"""Typed streams: every kind of schema there and back, batches as every kind of table, refusals."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
from collections.abc import Callable
from typing import Any

import anyio
import attrs
import duckdb
import msgpack
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_port import LocalPort

import penstock
from penstock import AsyncClient, SchemaMismatch
from penstock.client import Client
from penstock.client._schemas import codec_of

CHANNEL = "aeron:ipc"
STREAM = 1001
NOW = datetime.datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Leg:
    venue: str
    size: int


@dataclasses.dataclass
class Trade:
    symbol: str
    price: float
    size: int
    at: datetime.datetime = NOW
    note: str | None = None
    legs: list[Leg] = dataclasses.field(default_factory=list)


class Size(enum.IntEnum):
    LARGE = 7


@attrs.frozen
class Point:
    x: float
    y: float
    name: bytes = b""


RECORD = np.dtype([("id", "<i8"), ("price", "<f8"), ("size", "<i4"), ("tag", "S4")])
ARROW = pa.schema([("id", pa.int64()), ("name", pa.string())])

VALUES: dict[str, tuple[Any, list[Any]]] = {
    "dataclass": (Trade, [
        Trade("AAPL", 1.5, 3), Trade("M", 2.5, 2**40, NOW, "x", [Leg("N", 1), Leg("A", 2)]),
    ]),
    "attrs": (Point, [Point(1.0, 2.0), Point(-1.0, 0.5, b"\x00\xff")]),
    "numpy": (RECORD, list(np.array([(1, 1.5, 2, b"a"), (2, 2.5, 3, b"bcde")], RECORD))),
    "msgpack": ("msgpack", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]),
}
Made = Callable[[LocalPort, Client, Any], tuple[Any, Any]]


def typed(port: LocalPort, client: Client, schema: Any) -> tuple[Any, Any]:
    publication = client.add_publication(CHANNEL, STREAM, schema=schema)
    port.open_up(publication.raw.registration_id)
    return publication, client.add_subscription(CHANNEL, STREAM, schema=schema)


@pytest.fixture(params=list(VALUES))
def stream(
    request: pytest.FixtureRequest, port: LocalPort, client: Client
) -> tuple[Any, Any, list[Any]]:
    schema, values = VALUES[request.param]
    return *typed(port, client, schema), values


def test_values_arrive_as_they_were_sent(stream: tuple[Any, Any, list[Any]]) -> None:
    publication, subscription, values = stream
    for value in values:
        assert publication.offer(value) > 0
    assert publication.send_batch(values) > 0
    got = [subscription.recv(0) for _ in values]
    assert got == values
    assert [type(value) for value in got] == [type(value) for value in values]
    polled: list[Any] = []
    subscription.poll(lambda value, header: polled.append((value, header.position > 0)))
    assert polled == [(value, True) for value in values]


def test_loops_hold_and_release_as_without_a_schema(stream: tuple[Any, Any, list[Any]]) -> None:
    publication, subscription, values = stream
    publication.send_batch(values * 2)
    image = subscription.raw.images[0]
    for value in subscription:
        assert value == values[0]
        assert image.released_position == 0
        break
    released = image.released_position
    assert released > 0
    with pytest.raises(ZeroDivisionError):
        _fail_on_the_first(subscription)
    assert image.released_position == released
    assert subscription.recv(0) == values[1]            # delivered again
    for batch in subscription.batches(limit=10):
        assert list(batch) == values
        assert batch[1] == values[1]
        break


def _fail_on_the_first(subscription: Any) -> None:
    for _value in subscription:
        raise ZeroDivisionError


def test_batches_come_out_as_every_kind_of_table(
    stream: tuple[Any, Any, list[Any]], request: pytest.FixtureRequest
) -> None:
    publication, subscription, values = stream
    publication.send_batch(values)
    batch = subscription.recv_batch(timeout_s=0)
    table = batch.to_arrow()
    assert table.num_rows == len(batch) == len(values)
    assert batch.to_polars().shape == (len(values), table.num_columns)
    assert pl.DataFrame(batch).equals(batch.to_polars())
    assert batch.to_pandas().shape == (len(values), table.num_columns)
    assert pa.table(batch).equals(table)
    column = table.column_names[0]
    assert duckdb.sql(f"SELECT {column} FROM batch ORDER BY ALL").fetchall() == [
        (cell,) for cell in sorted(table.column(column).to_pylist())
    ]
    records = batch.to_numpy()
    assert records[column].tolist() == table.column(column).to_pylist()


def test_columns_have_the_types_of_the_schema(port: LocalPort, client: Client) -> None:
    publication, subscription = typed(port, client, Trade)
    publication.send_batch(VALUES["dataclass"][1])
    table = subscription.recv_batch(timeout_s=0).to_arrow()
    legs = pa.list_(pa.struct([("venue", pa.string()), ("size", pa.int64())]))
    assert table.schema == pa.schema([
        ("symbol", pa.string()), ("price", pa.float64()), ("size", pa.int64()),
        ("at", pa.timestamp("us", "UTC")), ("note", pa.string()), ("legs", legs),
    ])
    assert table.to_pylist()[1] == dataclasses.asdict(VALUES["dataclass"][1][1])


def tables() -> dict[str, Any]:
    """Two rows that fit RECORD, in every kind of table."""
    table = pa.table({
        "size": pa.array([7, 8], pa.int32()), "price": [0.5, 1.5], "tag": [b"x", b"y"],
        "id": [1, 2],
    })
    return {
        "arrow": table, "polars": pl.DataFrame(table), "pandas": table.to_pandas(),
        "duckdb": duckdb.from_arrow(table), "batch": table.to_batches()[0],
    }


@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas", "batch", "duckdb"])
def test_tables_go_in_a_row_a_message(port: LocalPort, client: Client, kind: str) -> None:
    publication, subscription = typed(port, client, RECORD)
    assert publication.offer_batch(tables()[kind]).accepted == 2
    records = subscription.recv_batch(timeout_s=0).to_numpy()
    assert records.dtype == RECORD
    assert records.tolist() == [(1, 0.5, 7, b"x"), (2, 1.5, 8, b"y")]


def test_tables_become_values_of_a_class(port: LocalPort, client: Client) -> None:
    publication, subscription = typed(port, client, Point)
    publication.send_batch(pd.DataFrame({"y": [1.0], "name": [b"n"], "x": [2.0]}))
    assert subscription.recv(0) == Point(2.0, 1.0, b"n")
    with pytest.raises(penstock.InvalidArgument, match="lacks columns of Point: y"):
        publication.send_batch(pl.DataFrame({"x": [1.0], "name": [b"n"]}))


def test_record_batches_of_an_arrow_schema(port: LocalPort, client: Client) -> None:
    publication, subscription = typed(port, client, ARROW)
    table = pa.table({"id": range(5000), "name": [f"name {n}" for n in range(5000)]}, ARROW)
    longest = publication.raw.max_message_length
    assert table.nbytes > 4 * longest                   # several messages
    publication.send_batch(table)
    messages, parts = 0, []
    while sum(part.num_rows for part in parts) < 5000:
        batch = subscription.recv_batch(timeout_s=0)
        messages += len(batch)
        parts.append(batch.to_arrow())
        rows = parts[-1].num_rows
        assert batch.to_polars().height == len(batch.to_numpy()) == rows
        assert duckdb.sql("SELECT count(*) FROM batch").fetchall() == [(rows,)]
        assert all(isinstance(part, pa.RecordBatch) for part in batch)
    assert messages > 4
    assert pa.concat_tables(parts).equals(table)
    publication.offer([{"id": 1, "name": "one"}])
    publication.offer(table.slice(0, 0))
    assert subscription.recv(0).to_pylist() == [{"id": 1, "name": "one"}]
    assert subscription.recv(0).num_rows == 0
    with pytest.raises(penstock.InvalidArgument, match="no record batch of"):
        publication.offer(pa.table({"id": [1]}))
    with pytest.raises(penstock.MessageTooLong, match="a row of"):
        publication.send_batch([{"id": 1, "name": "x" * longest}])


@pytest.mark.parametrize("wrong", [
    b"text", int, "json", 5, object(), pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))]),
    np.dtype(object), np.dtype("V0"),
])
def test_other_values_are_refused_as_a_schema(client: Client, wrong: Any) -> None:
    if wrong is int:
        assert codec_of(wrong).name == "record of int64"     # NumPy's reading of it
        return
    with pytest.raises(penstock.InvalidArgument):
        client.add_publication(CHANNEL, STREAM, schema=wrong)


@pytest.mark.parametrize(("schema", "value"), [
    (Trade, "text"), (Trade, Point(1, 2)), (Trade, {"symbol": "A"}),
    (Trade, Trade("A", 1.0, 1, at=datetime.datetime(2026, 1, 1))),
    (Trade, Trade("A", 1.0, 2**70)), (Trade, Trade("A", 1.0, "3")), (Trade, Trade(5, 1.0, 1)),
    (Trade, Trade("A", True, 1)), (Trade, Trade("A", 1.0, 1, NOW, 5)),
    (Trade, Trade("A", 1.0, 1, "today")), (Trade, Trade("A", 1.0, 1, legs=[Leg("N", "1")])),
    ("msgpack", object()), (RECORD, "text"), (RECORD, (1, 1.0, 2**40, b"a")),
    (RECORD, np.zeros(1, "i4")), (ARROW, 5),
])
def test_values_that_do_not_fit_are_refused_before_sending(
    port: LocalPort, client: Client, schema: Any, value: Any
) -> None:
    publication, subscription = typed(port, client, schema)
    with pytest.raises(penstock.InvalidArgument):
        publication.offer(value)
    assert publication.raw.position == 0
    assert not subscription.wait(0)


@pytest.mark.parametrize(("field", "column", "error"), [
    ("<i4", [1, 2**31], r"2147483648\) would arrive as"),
    ("<u8", [1, -1], r"-1\) would arrive as"),
    ("<i4", [1.0, 1.5], r"1\.5\) would arrive as"),
    ("<i4", ["1"], "'1' would arrive as"), ("<i4", ["x"], "invalid literal"),
    ("?", [True, None], "1 missing values"), ("S3", ["abc", "abcd"], "'abcd' would arrive as"),
    ("U3", ["abcd"], "'abcd' would arrive as"),
    ("<M8[ms]", [NOW, NOW.replace(microsecond=1)], "000001.* would arrive as"),
    ("<f8", [1.0, None], ""), ("<f4", [1.1, 2.2], ""), ("<M8[us]", [NOW, None], ""),
    ("<i4", [1.0, 2.0], ""), ("S3", ["abc", "a"], ""), ("<f8", [1, 2], ""),
])
def test_a_column_arrives_unchanged_or_is_refused(
    port: LocalPort, client: Client, field: str, column: list[Any], error: str
) -> None:
    publication, subscription = typed(port, client, np.dtype([("value", field)]))
    table = pa.table({"value": column})
    if error:
        with pytest.raises(penstock.InvalidArgument, match=f"column value .*{error}"):
            publication.offer_batch(table)
        assert publication.raw.position == 0
    else:
        assert publication.offer_batch(table).accepted == len(column)
        assert len(subscription.recv_batch(timeout_s=0)) == len(column)


def test_a_subclass_arrives_as_the_plain_type(port: LocalPort, client: Client) -> None:
    publication, subscription = typed(port, client, Trade)
    assert publication.offer(Trade("A", np.float64(2.5), int(Size.LARGE))) > 0
    assert publication.offer(Trade("A", 2.5, Size.LARGE)) > 0
    first, second = (subscription.recv(0) for _ in range(2))
    assert (first, type(first.price)) == (Trade("A", 2.5, 7), float)
    assert (second, type(second.size)) == (Trade("A", 2.5, 7), int)


PLAIN = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(),
        st.binary(), st.builds(msgpack.ExtType, st.integers(0, 127), st.binary()),
        st.builds(msgpack.Timestamp, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.one_of(st.text(), st.integers(0, 9)), inner)
    ),
    max_leaves=12,
)
PACKED = st.builds(msgpack.packb, PLAIN)


@pytest.mark.parametrize("kind", [*VALUES, "arrow"])
@given(message=st.one_of(st.binary(max_size=200), PACKED))
def test_any_bytes_are_a_value_or_a_mismatch(kind: str, message: bytes) -> None:
    codec = codec_of(ARROW if kind == "arrow" else VALUES[kind][0])
    for read in (codec.decode, lambda data: codec.to_arrow([memoryview(data)])):
        try:
            read(message)
        except SchemaMismatch as error:
            assert len(str(error)) < 1000


def test_a_message_of_another_schema_is_named_and_kept(port: LocalPort, client: Client) -> None:
    publication, subscription = typed(port, client, Point)
    publication.raw.offer(b"\x92\x01\x02")
    with pytest.raises(SchemaMismatch, match=r"no Point: .* has 2 fields, the schema has 3"):
        next(iter(subscription))
    assert subscription.raw.recv(0) == b"\x92\x01\x02"
    publication.raw.offer(b"abc")
    records = client.add_subscription(CHANNEL, STREAM, schema=RECORD)
    publication.raw.offer(b"abc")
    with pytest.raises(SchemaMismatch, match="a message of 3 bytes is no record"):
        records.recv_batch(timeout_s=0).to_numpy()


def test_the_awaited_classes_have_the_same_words() -> None:
    pairs = (
        (penstock.TypedPublication, penstock.AsyncTypedPublication),
        (penstock.TypedSubscription, penstock.AsyncTypedSubscription),
        (penstock.TypedConsumerGroup, penstock.AsyncTypedConsumerGroup),
        (penstock.TypedGroupBatch, penstock.AsyncTypedGroupBatch),
    )
    for plain, awaited in pairs:
        names = {name for name in dir(plain) if not name.startswith("_")}
        assert {name for name in dir(awaited) if not name.startswith("_")} == names
        for name in names:
            mine, its = (inspect.getattr_static(kind, name) for kind in (awaited, plain))
            if not isinstance(mine, property):
                assert list(inspect.signature(mine).parameters) == list(
                    inspect.signature(its).parameters
                )


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_typed_streams_are_awaited(port: LocalPort, backend: str) -> None:
    async def test() -> None:
        async with AsyncClient(port.watching_client()) as client:
            publication = await client.add_publication(CHANNEL, STREAM, schema=Point)
            port.open_up(publication.raw.registration_id)
            subscription = await client.add_subscription(CHANNEL, STREAM, schema=Point)
            sent = [Point(float(n), 0.0) for n in range(10)]
            await publication.send(sent[0])
            await publication.send_batch(sent[1:])
            assert await subscription.recv(0) == sent[0]
            async for value in subscription:
                assert value == sent[1]
                break
            async for batch in subscription.batches():
                assert list(batch) == sent[2:]
                break

    anyio.run(test, backend=backend)
