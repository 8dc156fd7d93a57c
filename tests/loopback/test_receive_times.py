# SPDX-License-Identifier: Apache-2.0
"""The two times of reception that a receiver writes into messages: that of the kernel, and that of
the daemon. They differ while the daemon is stopped."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable

import pytest

import penstock
from loopback.conftest import NewHost
from loopback.streams import connected, eventually, receive
from penstock.cli.stat import snapshot

TIMES = struct.Struct("<qq")
COUNT = 20
#: A daemon measures the difference of its clocks once a second; in this time, NTP moves the time of
#: day by at most 500 us (500 ppm).
DRIFT_NS = 1_000_000


@pytest.mark.parametrize("mode", ["unicast", "manual", "after a restart"])
def test_the_kernel_states_when_a_message_arrived_at_a_stopped_daemon(
    new_host: NewHost, port: Callable[[], int], mode: str
) -> None:
    near, far = new_host(), new_host()
    offsets = "media-rcv-ts-offset=0|channel-rcv-ts-offset=8"
    there = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with penstock.connect(near.directory) as sender, penstock.connect(far.directory) as reader:
        publication = sender.add_exclusive_publication(there, 7)
        if mode == "manual":
            subscription = reader.add_subscription(f"aeron:udp?control-mode=manual|{offsets}", 7)
            subscription.add_destination(there)
        else:
            subscription = reader.add_subscription(f"{there}|{offsets}", 7)
        connected(publication, subscription)
        if mode == "after a restart":
            far.kill()
            far.start()
            publication.send(bytes(64), 60.0)
            assert len(receive(subscription, 1)) == 1

        def sent() -> int:
            [row] = snapshot(near.directory)["status"]["publications"]
            position: int = row["consumer_position"]
            return position

        os.kill(far.pid, signal.SIGSTOP)
        try:
            began_ns = time.time_ns()
            for _ in range(COUNT):
                publication.send(bytes(64), 60.0)
            eventually(lambda: sent() >= publication.position, "the messages leave")
            left_ns = time.time_ns()
        finally:
            os.kill(far.pid, signal.SIGCONT)
        for message in receive(subscription, COUNT):
            received_ns, _read_ns = TIMES.unpack_from(message)
            assert began_ns - DRIFT_NS < received_ns < left_ns + DRIFT_NS
