# SPDX-License-Identifier: Apache-2.0
"""Aeron's receivers join a dynamic multi-destination publication of ours under forged joins.

A forged join is a status message for session 0 and stream 0 with the S flag, Aeron's first word to
a publisher that it does not know.  Its sender has no stream, so its place is taken for 2 s."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost, penstock_host
from support.messages import digest, messages

import penstock
from interop import aeron, aeron_c

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("aeron_built")]

Ports = Callable[[], int]
STREAM = 1001
RATE, TICK_S = 10_000, 0.005            # forged joins a second, and how often some leave
ADDRESSES = 500
BOUND = 15_000                          # of a second and a half
SEED, SIZES, COUNT = 5, "1-2000", 200


def join_frame(receiver_id: int) -> bytes:
    return struct.pack("<iBBHiiiiiq", 36, 0, 0x80, 3, 0, 0, 0, 0, 128 * 1024, receiver_id)


class ForgedJoins:
    """A thread that sends joins from many addresses.  It never sends more than its rate, so its
    count tells time that this machine could use."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._sockets = []
        for number in range(ADDRESSES):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((f"127.3.{number // 250}.{number % 250 + 1}", 0))
            self._sockets.append(made)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.sent = 0

    def __enter__(self) -> ForgedJoins:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _send(self) -> None:
        sockets = itertools.cycle(self._sockets)
        due_s = time.monotonic()
        while not self._over.wait(max(0.0, due_s - time.monotonic())):
            for _ in range(int(RATE * TICK_S)):
                self.sent += 1
                next(sockets).sendto(join_frame(self.sent), self._target)
            due_s = max(due_s + TICK_S, time.monotonic())


@pytest.fixture(params=["java", "c"])
def theirs(
    request: pytest.FixtureRequest, directories: Callable[[str], Path]
) -> Iterator[aeron.AeronHost]:
    if request.param == "java":
        host = aeron.aeron_host(directories("aeron"))
    else:
        request.getfixturevalue("aeron_c_built")
        host = aeron_c.aeron_c_host(directories("aeron"))
    with host as made:
        yield made


@pytest.fixture
def ours(directories: Callable[[str], Path]) -> Iterator[PenstockHost]:
    with penstock_host(directories("penstock")) as made:
        yield made


def test_aeron_receivers_join_under_forged_joins(
    theirs: aeron.AeronHost, ours: PenstockHost, ports: Ports,
    record_property: Callable[[str, object], None],
) -> None:
    control = f"control=127.0.0.1:{ports()}|control-mode=dynamic"
    port = int(control.split(":")[1].split("|")[0])
    sent = list(messages(seed=SEED, sizes=SIZES, count=COUNT))
    joins, times_ms = [], []
    with (
        penstock.connect(ours.directory, name="publisher") as client,
        client.add_publication(f"aeron:udp?{control}|term-length=64k", STREAM) as publication,
        ForgedJoins(port) as forged,
    ):
        for _ in range(3):
            channel = f"aeron:udp?{control}|endpoint=127.0.0.1:{ports()}"
            with theirs.sub(f"--channel={channel}", f"--count={COUNT}") as sub:
                sub.wait("added")
                begin, begin_s = forged.sent, time.monotonic()
                sub.wait("image")
                joins.append(forged.sent - begin)
                times_ms.append(round(1000 * (time.monotonic() - begin_s)))
                for message in sent:
                    publication.send(message, 60)
                assert sub.wait("done")["sha256"] == digest(sent)
    record_property("joins_meanwhile", joins)
    record_property("joined_ms", times_ms)
    assert max(joins) <= BOUND, (joins, times_ms)
