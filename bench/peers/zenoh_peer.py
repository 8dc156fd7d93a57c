# SPDX-License-Identifier: Apache-2.0
"""eclipse-zenoh as a peer: a reliable, blocking publisher and a subscriber, peer to peer over TCP,
without scouting.  ``python zenoh_peer.py ROLE JSON``."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import zenoh

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

_THERE = "bench/there"
_BACK = "bench/back"
_CHANNEL = 4096


def main() -> None:
    role, text = sys.argv[1:3]
    task = json.loads(text)
    with zenoh.open(_config(task, listens=role in ("sub", "pong"))) as session:
        {"pub": _publisher, "sub": _subscriber, "ping": _pinger, "pong": _ponger}[role](
            session, task
        )


def _config(task: dict[str, Any], *, listens: bool) -> Any:
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    endpoint = json.dumps([task["endpoint"]])
    config.insert_json5("listen/endpoints", endpoint if listens else "[]")
    config.insert_json5("connect/endpoints", "[]" if listens else endpoint)
    return config


def _declare(session: Any, key: str) -> Any:
    """A publisher that drops nothing."""
    return session.declare_publisher(
        key,
        congestion_control=zenoh.CongestionControl.BLOCK,
        reliability=zenoh.Reliability.RELIABLE,
    )


def _matched(publisher: Any) -> None:
    for _ in range(1500):
        if publisher.matching_status.matching:
            return
        time.sleep(0.01)
    raise SystemExit("no subscriber within 15 s")


def _publisher(session: Any, task: dict[str, Any]) -> None:
    orders = Orders()
    publisher = _declare(session, _THERE)
    _matched(publisher)
    say("ready")
    orders.wait_go()
    source = Source(task["size"])
    sent = 0
    put = publisher.put
    while not orders.stopped:
        for message in source.messages():
            put(message)
        sent += BLOCK_MESSAGES
    say("done", messages=sent)
    time.sleep(3600)


def _subscriber(session: Any, task: dict[str, Any]) -> None:
    orders = Orders()
    collector = Collector(task["size"])
    append = collector.append

    # The fastest of what there is: a callback on zenoh's own thread pays for a new thread state of
    # Python each time (0.1 M messages a second), one on a thread of Python's reaches 0.9 M, a
    # channel 1.3 M.
    subscriber = session.declare_subscriber(_THERE, zenoh.handlers.FifoChannel(_CHANNEL))

    def take() -> None:
        for sample in subscriber:
            append(sample.payload.to_bytes())

    threading.Thread(target=take, daemon=True).start()
    say("ready")
    measure = Measure(orders, warmup_s=task["warmup_s"], seconds=task["seconds"])
    while measure.tick(collector.messages):
        time.sleep(0.01)
    collector.settle(at_least=1)
    finish(collector.load)
    time.sleep(3600)


def _pinger(session: Any, task: dict[str, Any]) -> None:
    orders = Orders()
    publisher = _declare(session, _THERE)
    echoes = session.declare_subscriber(_BACK, zenoh.handlers.FifoChannel(_CHANNEL))
    _matched(publisher)
    say("ready")
    size = task["size"]

    def trip(count: int) -> list[int]:
        times_ns = []
        clock = time.perf_counter_ns
        for number in range(count):
            message = number.to_bytes(size, "little")
            begin_ns = clock()
            publisher.put(message)
            echo = echoes.recv().payload.to_bytes()
            times_ns.append(clock() - begin_ns)
            if echo != message:
                raise AssertionError("the echo is another message")
        return times_ns

    ping_loop(orders, trip, warmup_s=task["warmup_s"], seconds=task["seconds"])
    time.sleep(3600)


def _ponger(session: Any, _task: dict[str, Any]) -> None:
    Orders()
    publisher = _declare(session, _BACK)
    pings = session.declare_subscriber(_THERE, zenoh.handlers.FifoChannel(_CHANNEL))
    say("ready")
    for sample in pings:
        publisher.put(sample.payload.to_bytes())


if __name__ == "__main__":
    main()
