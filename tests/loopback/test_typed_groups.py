# SPDX-License-Identifier: Apache-2.0
"""Consumer groups with a schema: batches have values and tables, and are committed as batches of
bytes are."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import numpy as np
import pyarrow as pa
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S
from penstock import Client, SchemaMismatch

STREAM = 6002
TICK = np.dtype([("id", "<i4"), ("price", "<f8"), ("odd", "S3")])
ROWS = pa.schema([("id", pa.int64())])


@attrs.frozen
class Order:
    item: str
    count: int


SCHEMAS: dict[str, tuple[Any, list[Any]]] = {
    "class": (Order, [Order(f"item {n}", n) for n in range(100)]),
    "dtype": (TICK, list(np.array([(n, n / 2, b"abc") for n in range(100)], TICK))),
    "msgpack": ("msgpack", [{"item": f"item {n}", "count": n} for n in range(100)]),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_batches_of_a_group_have_values(client: Client, kind: str) -> None:
    schema, values = SCHEMAS[kind]
    with (
        client.consumer_group(kind, "aeron:ipc", STREAM, schema=schema) as group,
        client.add_publication("aeron:ipc", STREAM, schema=schema) as publication,
    ):
        publication.send_batch(values, timeout_s=TIMEOUT_S)
        got: list[Any] = []
        tables = []
        for batch in group.messages(limit=30, timeout_s=TIMEOUT_S):
            assert batch.session_id == publication.raw.session_id
            assert len(batch) == len(batch.to_numpy()) == batch.to_arrow().num_rows <= 30
            got += batch
            tables.append(pa.table(batch))
            assert not batch.is_committed
            batch.commit()
            assert batch.is_committed
            if len(got) == len(values):
                break
        assert got == values
        assert pa.concat_tables(tables).num_rows == len(values)
        assert group.state().logs[0].committed == publication.raw.position
        group.end()


def test_rows_of_many_messages_make_a_table(client: Client) -> None:
    with (
        client.consumer_group("rows", "aeron:ipc", STREAM, schema=ROWS) as group,
        client.add_publication("aeron:ipc", STREAM, schema=ROWS) as publication,
    ):
        for first in (0, 3):
            publication.send([{"id": first + n} for n in range(3)], timeout_s=TIMEOUT_S)
        batch = group.recv_batch(timeout_s=TIMEOUT_S)
        assert batch.to_polars()["id"].to_list() == list(range(6))
        batch.commit()
        group.end()


def test_a_message_that_does_not_fit_stays_uncommitted(client: Client) -> None:
    with (
        client.consumer_group("unfit", "aeron:ipc", STREAM, schema=Order) as group,
        client.add_publication("aeron:ipc", STREAM) as publication,
    ):
        publication.send(b"\xc1 is never msgpack", TIMEOUT_S)
        batch = group.recv_batch(timeout_s=TIMEOUT_S)
        with pytest.raises(SchemaMismatch, match="is no Order"):
            list(batch)
        again = next(group.messages(timeout_s=TIMEOUT_S))
        assert list(again.raw) == [b"\xc1 is never msgpack"]
        again.commit()
        group.end()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_typed_groups_are_awaited(host: PenstockHost, backend: str) -> None:
    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as client,
            await client.consumer_group(
                f"typed {backend}", "aeron:ipc", STREAM, schema=Order
            ) as group,
            await client.add_publication("aeron:ipc", STREAM, schema=Order) as publication,
        ):
            orders = [Order("pear", n) for n in range(10)]
            await publication.send_batch(orders)
            async for batch in group.messages(6, TIMEOUT_S):
                assert list(batch) == orders[:6]
                assert batch.to_pandas()["count"].sum() == 15
                await batch.commit()
                break
            rest = await group.recv_batch(timeout_s=TIMEOUT_S)
            assert list(rest) == orders[6:]
            await rest.commit()
            assert (await group.state()).logs[0].committed == publication.raw.position
            await group.end()

    anyio.run(test, backend=backend)
