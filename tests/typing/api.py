# SPDX-License-Identifier: Apache-2.0
"""The public API as a user writes it.  Never run: mypy --strict reads it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import penstock
from penstock import Action, Client, Header, Image, Message, MessageBatch, Offer
from penstock.client import (
    CurveKeys,
    GroupControl,
    GroupRefused,
    GroupState,
    LogRange,
    RangeNotRetained,
)


def publish(client: Client) -> None:
    with client.add_publication("aeron:udp?endpoint=10.0.0.2:40456", stream_id=1001) as pub:
        position = pub.offer(b"hello")
        assert_type(position, int)
        if position == Offer.BACK_PRESSURED or position in (Offer.ADMIN_ACTION, Offer.STORAGE):
            return
        pub.offer(bytearray(b"x"), reserved_value=1)
        pub.offer([b"one ", memoryview(b"two")])
        pub.offer((b"one ", bytearray(b"two")))
        pub.offer(np.zeros(4))
        pub.offer("text")  # type: ignore[arg-type]
        pub.offer(12)  # type: ignore[arg-type]
        pub.offer(["text"])  # type: ignore[list-item]
        pub.send("text")  # type: ignore[arg-type]
        with pub.try_claim(64) as claim:
            claim.buffer[:] = bytes(64)
            claim.reserved_value = 7
        refused = pub.try_claim(64)
        if not refused:
            assert_type(refused.code, Offer | None)
        assert_type(pub.send(b"hello", timeout_s=1.0, wait_connected=False), int)
        result = pub.offer_batch(np.zeros((8, 32), dtype=np.uint8))
        assert_type(result.accepted, int)
        accepted, last = pub.offer_batch(pa.array([b"a", b"b"]))
        assert_type((accepted, last), tuple[int, int])
        pub.offer_batch([b"a", b"b"])
        assert_type(pub.is_connected, bool)
        assert_type(pub.wait_connected(timeout_s=5), bool)
        assert_type(pub.statistics().available_window, int)
        assert_type(dict(pub.pressure().blocked_ns), dict[str, int])
        destination = pub.add_destination("aeron:udp?endpoint=10.0.0.3:40456")
        pub.remove_destination(destination)


def subscribe(client: Client) -> None:
    def arrived(image: Image) -> None:
        print(image.source_identity, image.join_position)

    def handler(message: memoryview, header: Header) -> None:
        assert_type(header.position, int)
        assert_type(header.image, Image)
        print(bytes(message))

    def controlled(message: memoryview, header: Header) -> Action:
        return Action.COMMIT if len(message) > 10 else Action.CONTINUE

    with client.add_subscription("aeron:ipc", 1001, on_available=arrived) as sub:
        assert_type(sub.poll(handler, limit=64), int)
        sub.poll(lambda message, header: print(header.session_id))
        sub.controlled_poll(controlled)
        assert_type(sub.wait(timeout_s=1), bool)
        with sub.poll_batch(limit=4096) as batch:
            assert_type(batch.positions, NDArray[np.int64])
            assert_type(batch.payloads, list[memoryview])
            table: pa.RecordBatch = batch.to_arrow()
            print(table.num_rows)
        for message in sub.messages(timeout_s=1, until_end=True):
            assert_type(message, Message)
            assert_type(message.position, int)
        for own in sub.batches(limit=64):
            assert_type(own, MessageBatch)
        assert_type(sub.recv(timeout_s=1), Message)
        assert_type([len(each) for each in sub], list[int])
        sub.poll(handler, checked=True)
        for image in sub.images:
            image.poll(handler)
            image.reject("not wanted")


@dataclasses.dataclass
class Trade:
    symbol: str
    size: int


def typed(client: Client) -> None:
    trades = client.add_publication("aeron:ipc", 20, schema=Trade)
    assert_type(trades, penstock.TypedPublication[Trade])
    trades.send(Trade("A", 1))
    trades.send(b"bytes")  # type: ignore[arg-type]
    for trade in client.add_subscription("aeron:ipc", 20, schema=Trade):
        assert_type(trade, Trade)
    batch = client.add_subscription("aeron:ipc", 20, schema=Trade).recv_batch(10)
    assert_type(batch, penstock.TypedBatch[Trade])
    assert_type(batch.to_numpy(), NDArray[Any])
    client.add_publication("aeron:ipc", 20, schema=np.dtype("i4")).send(np.int32(1))
    client.add_exclusive_publication("aeron:ipc", 20, schema=pa.schema([]))
    client.add_subscription("aeron:ipc", 20, schema="msgpack")
    for orders in client.consumer_group("orders", "aeron:ipc", 20, schema=Trade).messages():
        assert_type(orders, penstock.TypedGroupBatch[Trade])
    assert_type(client.consumer_group("orders", "aeron:ipc", 20), penstock.ConsumerGroup)


def ask(client: Client) -> None:
    @client.serve("aeron:ipc", 10, concurrency=2)
    def upper(request: Message) -> bytes:
        return request.upper()

    with upper, client.requester("aeron:ipc", 10) as requester:
        assert_type(requester.request(b"hello", timeout_s=1.0), Message)
        requester.request("text")  # type: ignore[arg-type]
        for reply in requester.request_many([b"a", b"b"], 1.0, count=2):
            assert_type(reply, Message | penstock.RemoteError)
        assert_type(requester.statistics().late, int)

    @client.serve("aeron:ipc", 10)  # type: ignore[arg-type]
    def wrong(request: Message) -> str:
        return "text"

    print(wrong)


def count(client: Client) -> None:
    with client.add_counter("requests") as counter:
        assert_type(counter.increment(), int)
        assert_type(client.counters[counter.id], int)


async def in_a_loop(directory: Path) -> None:
    async with penstock.open_client(directory, name="example") as client:
        publication = await client.add_publication("aeron:ipc", 1001)
        subscription = await client.add_subscription("aeron:ipc", 1001)
        await publication.wait_connected(5)
        assert_type(await publication.send(b"hello"), int)
        async for message in subscription:
            assert_type(message, Message)
            break
        assert_type(await subscription.recv(timeout_s=1), Message)
        assert_type(await subscription.recv_batch(64, timeout_s=1), MessageBatch)
        assert_type(await subscription.wait(1), bool)
        assert_type(await publication.send_batch([b"a"]), int)

        @client.serve("aeron:ipc", 10)
        async def upper(request: Message) -> bytes:
            return request.upper()

        async with upper, await client.requester("aeron:ipc", 10) as requester:
            assert_type(await requester.request(b"hello", 1.0), Message)


def in_groups(keys: CurveKeys) -> None:
    with GroupControl(directory="/dev/shm/penstock") as near:
        state = near.open(
            name="query", channel="aeron:ipc", stream_id=1001, starting="earliest",
            expiry_ns=60 * 10**9,
        )
        assert_type(state.logs, list[LogRange])
        for log in near.state(name="query", channel="aeron:ipc", stream_id=1001).logs:
            assert_type(log.time_index, list[tuple[int, int]])
            pieces = near.fetch(
                log_id=log.log_id, session_id=log.session_id, initial_term_id=log.initial_term_id,
                start=log.committed, end=log.end_position,
            )
            assert_type(next(pieces), bytes)
            pieces.close()
            near.acknowledge(
                name="query", channel="aeron:ipc", stream_id=1001,
                positions={(log.session_id, log.initial_term_id): log.end_position},
            )
    far = GroupControl(address="tcp://10.0.0.2:40460", keys=keys, server_key="x" * 40)
    try:
        assert_type(far.groups(), list[GroupState])
    except RangeNotRetained as error:
        assert_type(error.lowest_readable, int)
    except GroupRefused as error:
        assert_type(error.code, str)
    finally:
        far.close()


def main() -> None:
    try:
        with penstock.connect("/dev/shm/penstock", name="example", timeout_s=5) as client:
            publish(client)
            subscribe(client)
            count(client)
    except penstock.ChannelRefused as error:
        assert_type(error.code, str)
    except (penstock.DaemonNotRunning, penstock.DaemonGone) as error:
        print(error)
    except penstock.PenstockError as error:
        print(error)
