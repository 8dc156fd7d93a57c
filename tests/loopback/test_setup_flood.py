# SPDX-License-Identifier: Apache-2.0
"""SETUPs of strangers, as fast as they can be sent: publications are added beside them, a stream
that comes meanwhile is received, and nothing of the flood stays."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.hosts import PenstockHost
from support.listing import names_at_once

import penstock
from loopback.streams import connected, eventually, messages, pump

Port = Callable[[], int]
STREAM = 1001
MIB = 1 << 20
IP_PKTINFO = 8          # of <linux/in.h>


def setup_frame(session_id: int) -> bytes:
    """A SETUP of a stream with terms of 1 GiB."""
    return struct.pack("<iBBHiiiiiiii", 40, 0, 0, 5, 0, session_id, STREAM, 0, 0, 1 << 30, 1408, 0)


def source(number: int) -> tuple[int, int, bytes]:
    """A control message with the address that a datagram comes from: one socket has them all."""
    address = socket.inet_aton(f"127.1.{number // 250}.{number % 250 + 1}")
    return socket.IPPROTO_IP, IP_PKTINFO, struct.pack("=i4s4s", 0, address, bytes(4))


class Flood:
    """One thread that sends SETUPs of sessions that nobody has."""

    def __init__(self, port: int, addresses: int) -> None:
        self._target = ("127.0.0.1", port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sources = [source(number) for number in range(addresses)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def _send(self) -> None:
        while not self._over.is_set():
            for each in self._sources:
                self.sent += 1
                self._socket.sendmsg([setup_frame(self.sent)], [each], 0, self._target)


def images(host: PenstockHost) -> int:
    return len(names_at_once(host.directory / "images"))


def allocated(host: PenstockHost, name: str = "*.logbuffer") -> int:
    """Bytes of files that take memory."""
    total = 0
    for folder, *_ in os.walk(host.directory):
        for file in fnmatch.filter(names_at_once(Path(folder)), name):
            with contextlib.suppress(FileNotFoundError):        # it went meanwhile
                total += (Path(folder) / file).stat().st_blocks * 512
    return total


# Pages of cnc.dat that held counters of 64 or 1 024 images stay (0.8 or up to 8 MiB), and the heap
# keeps its largest size (0.4 or up to 6 MiB more).
@pytest.mark.parametrize(("addresses", "kept_mib"), [(1, 3), (500, 16), (5000, 16)])
def test_a_flood_of_setups_shuts_out_no_stream(
    new_host: Callable[..., PenstockHost], port: Port, tmp_path: Path, addresses: int,
    kept_mib: int,
) -> None:
    config = tmp_path / "penstock.toml"     # ended images go after 5 s instead of 20 s
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "4s"\nimage_linger_ns = "1s"\n')
    host, there = new_host("--config", str(config)), port()
    channel = f"aeron:udp?endpoint=127.0.0.1:{there}"
    with penstock.connect(host.directory, name="flooded") as client:
        subscription = client.add_subscription(channel, STREAM)
        for number in range(100):       # what the commands keep is not the flood's
            client.add_publication("aeron:ipc?term-length=64k", 1900 + number).close()
        before = psutil.Process(host.pid).memory_info().rss
        slots_before = allocated(host, "penstock.dat")
        with Flood(there, addresses) as flood:
            for number in range(100):
                client.add_publication("aeron:ipc?term-length=64k", 2000 + number).close()
                assert images(host) <= 1100
            publication = client.add_publication(f"{channel}|term-length=64k", STREAM)
            connected(publication, subscription)
            assert allocated(host) < 400 * MIB
            assert flood.sent > 1000
        assert pump(publication, messages(100), [subscription]) == [messages(100)]
        assert len(subscription.images) == 1
        eventually(lambda: images(host) == 1, "the flood's images go")
        assert psutil.Process(host.pid).memory_info().rss < before + kept_mib * MIB
        # One stream more than at the start; the slots of ended images are freed a second later.
        eventually(
            lambda: allocated(host, "penstock.dat") < slots_before + MIB // 2,
            "the memory of the flood's slots goes back",
        )
        publication.close()
        eventually(lambda: allocated(host) == 0, "the flood's logs go")
