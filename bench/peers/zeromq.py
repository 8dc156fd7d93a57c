# SPDX-License-Identifier: Apache-2.0
"""pyzmq as a peer: PUSH and PULL over TCP, one message a call or multipart batches; PAIR for
round trips.  ``python zeromq.py ROLE JSON``."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import zmq

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

_PARTS = 256


def main() -> None:
    role, text = sys.argv[1:3]
    task = json.loads(text)
    with zmq.Context() as context:
        {"pub": _publisher, "sub": _subscriber, "ping": _pinger, "pong": _ponger}[role](
            context, task
        )


def _socket(context: zmq.Context[Any], kind: int, task: dict[str, Any]) -> zmq.Socket[Any]:
    socket: zmq.Socket[Any] = context.socket(kind)
    for option in (zmq.SNDBUF, zmq.RCVBUF):
        socket.setsockopt(option, task["so_buffers"])
    # As many as the window of the others holds.
    for option in (zmq.SNDHWM, zmq.RCVHWM):
        socket.setsockopt(option, max(1000, task["window"] // task["size"]))
    return socket


def _publisher(context: zmq.Context[Any], task: dict[str, Any]) -> None:
    orders = Orders()
    socket = _socket(context, zmq.PUSH, task)
    socket.connect(task["endpoint"])
    say("ready")
    orders.wait_go()
    source = Source(task["size"])
    sent = 0
    if task["client"] == "batch":
        while not orders.stopped:
            messages = source.messages()
            for at in range(0, len(messages), _PARTS):
                socket.send_multipart(messages[at : at + _PARTS])
            sent += BLOCK_MESSAGES
    else:
        send = socket.send
        while not orders.stopped:
            for message in source.messages():
                send(message)
            sent += BLOCK_MESSAGES
    say("done", messages=sent)
    time.sleep(3600)


def _subscriber(context: zmq.Context[Any], task: dict[str, Any]) -> None:
    orders = Orders()
    socket = _socket(context, zmq.PULL, task)
    socket.bind(task["endpoint"])
    socket.setsockopt(zmq.RCVTIMEO, 20)
    say("ready")
    measure = Measure(orders, warmup_s=task["warmup_s"], seconds=task["seconds"])
    collector = Collector(task["size"])
    append, receive = collector.append, socket.recv
    while measure.tick(collector.messages):
        with contextlib.suppress(zmq.Again):
            if task["client"] == "batch":
                for _ in range(8):
                    append(b"".join(socket.recv_multipart()))
            else:
                for _ in range(2048):
                    append(receive())
        collector.settle()
    collector.settle(at_least=1)
    finish(collector.load)
    time.sleep(3600)


def _pinger(context: zmq.Context[Any], task: dict[str, Any]) -> None:
    orders = Orders()
    socket = context.socket(zmq.PAIR)
    socket.connect(task["endpoint"])
    say("ready")
    size = task["size"]

    def trip(count: int) -> list[int]:
        times_ns = []
        clock = time.perf_counter_ns
        for number in range(count):
            message = number.to_bytes(size, "little")
            begin_ns = clock()
            socket.send(message)
            echo = socket.recv()
            times_ns.append(clock() - begin_ns)
            if echo != message:
                raise AssertionError("the echo is another message")
        return times_ns

    ping_loop(orders, trip, warmup_s=task["warmup_s"], seconds=task["seconds"])
    time.sleep(3600)


def _ponger(context: zmq.Context[Any], task: dict[str, Any]) -> None:
    Orders()
    socket = context.socket(zmq.PAIR)
    socket.bind(task["endpoint"])
    say("ready")
    while True:
        socket.send(socket.recv())


if __name__ == "__main__":
    main()
