# SPDX-License-Identifier: Apache-2.0
"""A receiver's daemon dies while the first data of a stream is on its way. The sender has a status
message and has sent: the next daemon gets this data, although no subscriber knew of the stream."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from loopback.conftest import NewHost
from loopback.streams import eventually
from penstock.client import GroupControl

STREAM, SESSION, TERM, MTU = 1001, 77, 64 * 1024, 1408
FRAME, FRAMES = 1024, 16
END = FRAME * FRAMES
SETUP, DATA, NAK, STATUS = 5, 1, 2, 3
REQUESTS_SETUP = 0x80


class Sender:
    """A sender that was accepted once and never sends again what nobody requests, as Aeron's."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._target = ("127.0.0.1", port)
        self.position = 0

    def close(self) -> None:
        self._selector.close()
        self._socket.close()

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionRefusedError):       # the daemon is dead
            self._socket.sendto(data, self._target)

    def setup(self) -> None:
        self._send(struct.pack(
            "<iBBHiiiiiiii", 40, 0, 0, SETUP, self.position, SESSION, STREAM, 0, 0, TERM, MTU, 0
        ))

    def frame(self, position: int) -> None:
        body = struct.pack("<I", position // FRAME) * ((FRAME - 32) // 4)
        self._send(struct.pack(
            "<iBBHiiiiq", FRAME, 0, 0xC0, DATA, position, SESSION, STREAM, 0, 0
        ) + body)

    def heartbeat(self) -> None:
        self._send(struct.pack(
            "<iBBHiiiiq", 0, 0, 0xC0, DATA, self.position, SESSION, STREAM, 0, 0
        ))

    def send(self, count: int) -> None:
        for _ in range(count):
            self.frame(self.position)
            self.position += FRAME

    def hear(self, seconds: float) -> list[bytes]:
        self._selector.select(seconds)
        found = []
        while True:
            try:
                found.append(self._socket.recv(2048))
            except (BlockingIOError, ConnectionRefusedError):
                return found

    def until_accepted(self) -> None:
        """Until a status message opens the window."""
        patience = Patience(30)
        while not patience.is_over:
            self.setup()
            for datagram in self.hear(0.05):
                flags, kind = datagram[5], struct.unpack_from("<H", datagram, 6)[0]
                if kind == STATUS and not flags & REQUESTS_SETUP:
                    return
        pytest.fail("no status message")

    def step(self) -> None:
        """Answers what the receiver requests; a heartbeat every 50 ms."""
        self.heartbeat()
        for datagram in self.hear(0.05):
            flags, kind = datagram[5], struct.unpack_from("<H", datagram, 6)[0]
            if kind == STATUS and flags & REQUESTS_SETUP:
                self.setup()
            elif kind == NAK:
                at, length = struct.unpack_from("<ii", datagram, 20)
                for position in range(at, min(at + length, self.position), FRAME):
                    self.frame(position)


@pytest.fixture
def sender(port: Callable[[], int]) -> Iterator[tuple[Sender, int]]:
    there = port()
    made = Sender(there)
    yield made, there
    made.close()


# The kernel draws the moment: the conductor hears of the first frame while its daemon is killed.
@pytest.mark.parametrize("before", [0, 1, 4, 8, 12, FRAMES])
def test_a_group_reads_the_stream_from_its_first_byte(
    new_host: NewHost, sender: tuple[Sender, int], before: int
) -> None:
    """``before``: frames that are on their way when the daemon is killed."""
    host, (stream, there) = new_host(), sender
    channel = f"aeron:udp?endpoint=127.0.0.1:{there}"
    with GroupControl(directory=str(host.directory)) as control:
        control.open(name="query", channel=channel, stream_id=STREAM, expiry_ns=600 * 10**9)
        stream.until_accepted()
        stream.send(before)
        host.kill()
        stream.send(FRAMES - before)
        host.start()

        def has_all() -> bool:
            stream.step()
            logs = control.state(name="query", channel=channel, stream_id=STREAM).logs
            return any(log.end_position == END for log in logs)

        eventually(has_all, "the stream does not arrive")
        [log] = control.state(name="query", channel=channel, stream_id=STREAM).logs
        assert (log.committed, log.end_position) == (0, END)
        data = b"".join(control.fetch(
            log_id=log.log_id, session_id=SESSION, initial_term_id=0, start=0, end=END,
        ))
    assert [data[at + 32] for at in range(0, END, FRAME)] == list(range(FRAMES))


def test_a_subscriber_reads_the_stream_from_its_first_byte(
    new_host: NewHost, sender: tuple[Sender, int]
) -> None:
    host, (stream, there) = new_host(), sender
    received: list[int] = []
    with penstock.connect(host.directory) as client:
        subscription = client.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{there}", STREAM)
        stream.until_accepted()
        host.kill()
        stream.send(FRAMES)
        host.start()

        def has_all() -> bool:
            stream.step()
            subscription.poll(lambda message, _: received.append(message[0]))
            return len(received) >= FRAMES

        eventually(has_all, "the stream does not arrive")
    assert received == list(range(FRAMES))


def test_an_image_whose_sender_is_gone_leaves_nothing(
    new_host: NewHost, sender: tuple[Sender, int], tmp_path: Path
) -> None:
    """It never had a frame: no subscriber hears of it, before or after the death."""
    config = tmp_path / "config.toml"
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "1s"\n')
    host: PenstockHost = new_host("--config", str(config))
    stream, there = sender
    with penstock.connect(host.directory) as client:
        subscription = client.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{there}", STREAM)
        stream.until_accepted()
        host.kill()
        host.start()
        eventually(
            lambda: not list((host.directory / "images").glob("*.logbuffer")), "a log stays"
        )
        assert not subscription.images
