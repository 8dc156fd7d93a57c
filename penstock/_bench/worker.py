# SPDX-License-Identifier: Apache-2.0
"""penstock's own measured clients: ``python -m penstock._bench.worker ROLE JSON``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from penstock._bench.worker_io import (
    BLOCK_MESSAGES,
    Collector,
    Measure,
    Orders,
    Source,
    finish,
    ping_loop,
    say,
)
from penstock.client import Client, MessageBatch, Publication, Subscription, connect
from penstock.core.bench import Load, ManyLoads, ping, pong

CONNECT_S: Final = 15.0
STREAM: Final = 1001
_SLICE_NS: Final = 20_000_000
_BUSY_BATCH: Final = 2048
_TICK_NS: Final = 1_000_000
_Task = dict[str, Any]


def main() -> None:
    role, text = sys.argv[1:3]
    task: _Task = json.loads(text)
    with connect(task["dir"], name=f"penstock bench {role}") as client:
        _ROLES[role](client, task)


def _credits(task: _Task) -> int | None:
    return task["credits"] or None


# ---- throughput ----------------------------------------------------------------------------------


def _publisher(client: Client, task: _Task) -> None:
    orders = Orders()
    size = task["size"]
    add = client.add_publication if task["shared"] else client.add_exclusive_publication
    publication = add(task["channel"], STREAM)
    _connected(publication)
    say("ready")
    orders.wait_go()
    begin_ns = time.monotonic_ns()
    sent = _SENDERS[task["client"]](client, publication, size, orders)
    pressure = publication.pressure()
    say("done", messages=sent, ns=time.monotonic_ns() - begin_ns,
        pressure_events=pressure.pressed_episodes, pressure_ns=pressure.pressed_ns,
        peak_depth_bytes=pressure.peak_bytes)
    _linger(orders)


def _send_native(client: Client, publication: Publication, size: int, orders: Orders) -> int:
    load = Load()
    while not orders.stopped:
        load.publish(client._native(), publication._open(), size, time.monotonic_ns() + _SLICE_NS)
    return load.messages


def _send_single(_client: Client, publication: Publication, size: int, orders: Orders) -> int:
    source = Source(size)
    sent = 0
    offer, send = publication.offer, publication.send
    while not orders.stopped:
        for message in source.messages():
            if offer(message) < 0:
                send(message)
        sent += BLOCK_MESSAGES
    return sent


def _send_batches(_client: Client, publication: Publication, size: int, orders: Orders) -> int:
    import numpy as np

    source = Source(size, _BUSY_BATCH)
    sent = 0
    while not orders.stopped:
        rows = np.frombuffer(source.block(), dtype=np.uint8).reshape(-1, size)
        accepted = publication.offer_batch(rows).accepted
        if accepted < len(rows):
            publication.send_batch(rows[accepted:])
        sent += _BUSY_BATCH
    return sent


def _subscriber(client: Client, task: _Task) -> None:
    orders = Orders()
    subscription = client.add_subscription(task["channel"], STREAM, credits=_credits(task))
    say("ready")
    _imaged(subscription)
    measure = Measure(orders, warmup_s=task["warmup_s"], seconds=task["seconds"])
    load = _RECEIVERS[task["client"]](client, subscription, task["size"], measure)
    finish(load)
    _linger(orders)


def _receive_native(
    client: Client, subscription: Subscription, _size: int, measure: Measure
) -> Load:
    load = Load()
    native, handle = client._native(), subscription._handle
    while measure.tick(load.messages):
        load.receive(native, handle, measure.slice_ns)
    return load


def _receive_single(
    _client: Client, subscription: Subscription, size: int, measure: Measure
) -> Load:
    collector = Collector(size)
    append = collector.append

    def take(message: memoryview, _header: object) -> None:
        append(message)

    poll, wait = subscription.poll, subscription.wait
    while measure.tick(collector.messages):
        for _ in range(32):
            if poll(take, 256) == 0:
                wait(0.01)
                break
        collector.settle()
    collector.settle(at_least=1)
    return collector.load


def _receive_batches(
    _client: Client, subscription: Subscription, _size: int, measure: Measure
) -> Load:
    load = Load()
    while measure.tick(load.messages):
        batch: MessageBatch = subscription.poll_batch(_BUSY_BATCH)
        if len(batch):
            # A consumer that reads the batch as columns: here the hash, in C.
            messages = batch._messages
            assert messages is not None
            load.fold_messages(messages.native, len(batch))
        batch.release()
        if not len(batch):
            subscription.wait(0.01)
    return load


# ---- round trips ---------------------------------------------------------------------------------


def _pinger(client: Client, task: _Task) -> None:
    orders = Orders()
    pongs = client.add_subscription(task["back"], STREAM, credits=_credits(task))
    pings = client.add_exclusive_publication(task["channel"], STREAM)
    _connected(pings)
    _imaged(pongs)
    say("ready")
    size, spin_ns = task["size"], task["spin_ns"]
    if task["client"] == "native":
        trip = _native_trip(client, pings, pongs, size, spin_ns)
    else:
        trip = _python_trip(pings, pongs, size, spin_ns)
    ping_loop(orders, trip, warmup_s=task["warmup_s"], seconds=task["seconds"])
    _linger(orders)


def _native_trip(
    client: Client, pings: Publication, pongs: Subscription, size: int, spin_ns: int
) -> Callable[[int], list[int]]:
    native = client._native()

    def trip(count: int) -> list[int]:
        return ping(native, pings._open(), pongs._handle, size, count, spin_ns)

    return trip


def _python_trip(
    pings: Publication, pongs: Subscription, size: int, spin_ns: int
) -> Callable[[int], list[int]]:
    returned: list[bytes] = []

    def take(message: memoryview, _header: object) -> None:
        returned.append(bytes(message))

    def trip(count: int) -> list[int]:
        times_ns = []
        clock, poll = time.perf_counter_ns, pongs.poll
        for number in range(count):
            message = number.to_bytes(size, "little")
            begin_ns = clock()
            if pings.offer(message) < 0:
                pings.send(message)
            while not poll(take, 1):
                if clock() - begin_ns >= spin_ns:
                    pongs.wait(5.0)
            times_ns.append(clock() - begin_ns)
            if returned.pop() != message:
                raise AssertionError("the echo is another message")
        return times_ns

    return trip


def _ponger(client: Client, task: _Task) -> None:
    Orders()
    pings = client.add_subscription(task["channel"], STREAM, credits=_credits(task))
    pongs = client.add_exclusive_publication(task["back"], STREAM)
    say("ready")
    _connected(pongs)
    _imaged(pings)
    spin_ns = task["spin_ns"]
    native = client._native()
    while task["client"] == "native":
        pong(native, pongs._open(), pings._handle, time.monotonic_ns() + 10**8, spin_ns)

    def echo(message: memoryview, _header: object) -> None:
        if pongs.offer(message) < 0:
            pongs.send(message)

    poll, clock = pings.poll, time.perf_counter_ns
    while True:
        begin_ns = clock()
        while not poll(echo, 1):
            if clock() - begin_ns >= spin_ns:
                pings.wait(5.0)


# ---- many streams --------------------------------------------------------------------------------


def _many_publisher(client: Client, task: _Task) -> None:
    orders = Orders()
    publications = [
        client.add_exclusive_publication(task["channel"], STREAM + number)
        for number in range(task["streams"])
    ]
    for publication in publications:
        _connected(publication, CONNECT_S + task["streams"] / 50)
    say("ready")
    orders.wait_go()
    busy = publications[: task["busy"]]
    loads = ManyLoads("pub", [publication._open() for publication in busy])
    per_tick = max(1, round(task["rate"] * _TICK_NS / 1e9 / max(1, len(busy))))
    while not orders.stopped:
        if busy:
            loads.publish_paced(client._native(), task["size"], per_tick, _TICK_NS,
                                time.monotonic_ns() + _SLICE_NS)
        else:
            time.sleep(0.05)
    say("done", messages=loads.messages)
    _linger(orders)


def _many_subscriber(client: Client, task: _Task) -> None:
    orders = Orders()
    subscriptions = [
        client.add_subscription(task["channel"], STREAM + number)
        for number in range(task["streams"])
    ]
    say("ready")
    for subscription in subscriptions:
        _imaged(subscription, CONNECT_S + task["streams"] / 50)
    say("connected")
    busy = subscriptions[: task["busy"]]
    if not busy:
        _linger(orders)
    loads = ManyLoads("sub", [subscription._handle for subscription in busy])
    measure = Measure(orders, warmup_s=task["warmup_s"], seconds=task["seconds"])
    while measure.tick(loads.messages):
        loads.receive(client._native(), measure.slice_ns)
    say("done", messages=loads.messages, hashes=[[n, f"{h:016x}"] for n, h in loads.hashes()])
    _linger(orders)


# ---- small things --------------------------------------------------------------------------------


def _connected(publication: Publication, timeout_s: float = CONNECT_S) -> None:
    if not publication.wait_connected(timeout_s):
        raise SystemExit(f"{publication.channel}: no receiver within {timeout_s:g} s")


def _imaged(subscription: Subscription, timeout_s: float = CONNECT_S) -> None:
    if not subscription.wait_connected(timeout_s):
        raise SystemExit(f"{subscription.channel}: no image within {timeout_s:g} s")


def _linger(_orders: Orders) -> None:
    """Keep the streams open until the harness ends the input."""
    while True:
        time.sleep(3600)


_SENDERS: Final = {"native": _send_native, "python": _send_single, "batch": _send_batches}
_RECEIVERS: Final = {
    "native": _receive_native, "python": _receive_single, "batch": _receive_batches,
}
_ROLES: Final[dict[str, Callable[[Client, _Task], None]]] = {
    "pub": _publisher,
    "sub": _subscriber,
    "ping": _pinger,
    "pong": _ponger,
    "many-pub": _many_publisher,
    "many-sub": _many_subscriber,
}

if __name__ == "__main__":
    main()
