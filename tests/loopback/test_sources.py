# SPDX-License-Identifier: Apache-2.0
"""Several senders of one session at the port of a real receiver: whom it follows, what it tells.

The senders are sockets of the test, so that each of them can fall silent, resume and lie."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.patience import Patience

import penstock
from loopback.conftest import NewHost
from loopback.streams import TIMEOUT_S, eventually, receive

Port = Callable[[], int]
STREAM, SESSION, TERM_ID, TERM, MTU = 1001, 77, 5, 64 * 1024, 1408
FRAME = 64
EOS, REVOKED = 0x20, 0x10
CONFIG = """
[timeouts]
connection_timeout_ns = "1s"
image_liveness_timeout_ns = "3s"
idle_heartbeat_interval_ns = "400ms"
"""


def trailer(ordinal: int, epoch: int) -> bytes:
    """Return the bytes behind the SETUP of a penstock sender: daemon 4711."""
    values = ((1, struct.pack("<I", 1 | 2)), (2, struct.pack("<QQ", 4711, epoch)),
              (3, struct.pack("<q", ordinal)))
    body = b"".join(struct.pack("<HH", kind, len(value)) + value for kind, value in values)
    return b"PSTK" + struct.pack("<BBH", 1, 0, 8 + len(body)) + body


class Sender:
    """A socket that sends the session; positions are frames of 64 bytes."""

    def __init__(self, target: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._target = ("127.0.0.1", target)

    def close(self) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        return "{}:{}".format(*self._socket.getsockname())

    def setup(self, frame: int, *, mtu: int = MTU, ordinal: int = -1, epoch: int = 1) -> None:
        at = frame * FRAME
        base = struct.pack("<iBBHiiiiiiii", 40, 0, 0, 5, at % TERM, SESSION, STREAM, TERM_ID,
                           TERM_ID + at // TERM, TERM, mtu, 0)
        self._send(base + (trailer(ordinal, epoch) if ordinal >= 0 else b""))

    def announce(self, frame: int, *, ordinal: int = -1) -> None:
        """A SETUP and a heartbeat: subscribers see an image from its first frame on."""
        self.setup(frame, ordinal=ordinal)
        self.beat(frame)

    def data(self, frame: int, text: bytes) -> None:
        body = text.ljust(FRAME - 32, b".")
        self._send(self._header(frame, FRAME, 0xC0) + body)

    def beat(self, frame: int, flags: int = 0) -> None:
        self._send(self._header(frame, 0, 0xC0 | flags))

    def heard(self) -> int:
        """Status messages of the receiver since the last call, but for requests of a SETUP."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram = self._socket.recv(2048)
                count += datagram[6] == 3 and not datagram[5] & 0x80
        return count

    def errors(self) -> list[bytes]:
        """Texts of the ERR frames since the last call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram = self._socket.recv(2048)
                if datagram[6] == 4:
                    found.append(datagram[40 : struct.unpack_from("<i", datagram)[0]])
        return found

    def _header(self, frame: int, length: int, flags: int) -> bytes:
        at = frame * FRAME
        return struct.pack("<iBBHiiiiq", length, 0, flags, 1, at % TERM, SESSION, STREAM,
                           TERM_ID + at // TERM, 0)

    def _send(self, datagram: bytes) -> None:
        self._socket.sendto(datagram, self._target)


@pytest.fixture
def remote(new_host: NewHost, tmp_path: Path) -> Iterator[penstock.Client]:
    """A client of a receiver with short time-outs."""
    config = tmp_path / "penstock.toml"
    config.write_text(CONFIG)
    host = new_host("--config", str(config))
    with penstock.connect(host.directory) as made:
        yield made


def until(happened: Callable[[], bool], meanwhile: Callable[[], object], what: str) -> None:
    """Wait, while senders that are alive say so."""
    patience = Patience(TIMEOUT_S)
    while not happened():
        assert not patience.is_over, what
        meanwhile()
        time.sleep(0.02)


def until_heard(sender: Sender, says: Callable[[], object]) -> None:
    """Wait for the receiver's status messages to this sender."""
    until(lambda: sender.heard() > 0, says, "the live sender is silenced")


def test_zombie_and_live_sender_swap_three_times_on_sockets(
    remote: penstock.Client, port: Port
) -> None:
    number = port()
    with (
        remote.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{number}", STREAM) as subscription,
        contextlib.closing(Sender(number)) as first,
        contextlib.closing(Sender(number)) as second,
    ):
        senders = [first, second]
        first.setup(0)
        until(lambda: bool(subscription.images), lambda: first.announce(0), "no image")
        frame = 0
        for swap in range(4):
            live, zombie = senders[swap % 2], senders[1 - swap % 2]
            until_heard(live, partial(live.setup, frame))
            live.data(frame, b"live")
            receive(subscription, 1)
            frame += 1
            zombie.heard()
            for _ in range(20):
                zombie.setup(frame)
                zombie.data(frame, b"zombie")
                zombie.beat(frame, EOS | REVOKED)
                live.data(frame, b"live %d" % frame)
                assert receive(subscription, 1)[0].rstrip(b".") == b"live %d" % frame
                frame += 1
            assert zombie.heard() == 0
            live.heard()
            until_heard(live, partial(live.beat, frame))
        assert len(subscription.images) == 1
        (row,) = remote.status()["images"]
        assert row["foreign_datagrams"] >= 4 * 60


def rejoin(subscription: penstock.Subscription, sender: Sender, frame: int, ordinal: int) -> None:
    def again() -> None:
        sender.announce(frame, ordinal=ordinal)
        subscription.poll(lambda _m, _h: None)

    until(lambda: bool(subscription.gaps), again, "no gap was told")


@pytest.mark.parametrize("end", ["silence", "false end", "revoked"])
@pytest.mark.parametrize("unread", [0, 3])
def test_a_stream_that_returns_tells_the_gap_with_its_count(
    remote: penstock.Client, port: Port, end: str, unread: int
) -> None:
    number = port()
    with (
        remote.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{number}", STREAM) as subscription,
        contextlib.closing(Sender(number)) as sender,
    ):
        until(lambda: bool(subscription.images), lambda: sender.announce(100, ordinal=250),
              "no image")
        for frame in range(100, 110):
            sender.data(frame, b"%d" % frame)
        eventually(lambda: remote_images(remote)[0]["position"] == 110 * FRAME, "not received")
        read = 10 - (unread if end == "revoked" else 0)
        for _ in range(read):
            assert subscription.poll(lambda _m, _h: None, 1) == 1
        stood = subscription.images[0].position // FRAME
        assert stood == 100 + read
        flags = {"silence": None, "false end": EOS, "revoked": EOS | REVOKED}[end]
        if flags is not None:
            until(lambda: not remote_active(remote), lambda: sender.beat(110, flags), "no end")
        eventually(lambda: not remote_images(remote), "the image stays")
        rejoin(subscription, sender, 200, 275)
        (gap,) = subscription.gaps
        assert (gap.from_position, gap.to_position) == (stood * FRAME, 200 * FRAME)
        assert gap.messages == 275 - (250 + stood - 100)


def remote_images(client: penstock.Client) -> list[dict[str, object]]:
    return list(client.status()["images"])


def remote_active(client: penstock.Client) -> bool:
    return any(row["state"] == "active" for row in remote_images(client))


def test_an_mtu_above_the_window_is_answered_with_an_error(
    remote: penstock.Client, port: Port
) -> None:
    number = port()
    channel = f"aeron:udp?endpoint=127.0.0.1:{number}|rcv-wnd=4k"
    with (
        remote.add_subscription(channel, STREAM) as subscription,
        contextlib.closing(Sender(number)) as sender,
    ):
        texts: list[bytes] = []

        def refused() -> bool:
            texts.extend(sender.errors())
            return bool(texts)

        until(refused, lambda: sender.setup(0, mtu=8192), "no ERR frame")
        assert b"MTU 8192" in texts[0]
        assert b"receiver window 4096" in texts[0]
        assert not subscription.images
        until(lambda: bool(subscription.images), lambda: sender.announce(0), "no image")
