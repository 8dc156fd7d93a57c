# SPDX-License-Identifier: Apache-2.0
"""Hostile datagrams at the ports of a running transfer: they cost a counter, nothing else."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S, connected, messages, pump
from penstock import Client, Publication

Port = Callable[[], int]
STREAM = 1001
TERM = 64 * 1024
INVALID_PACKETS = 14        # system counter
EDGES = (0, 1, -1, 7, 28, 32, 40, TERM, TERM - 32, TERM + 32, 2**31 - 1, -(2**31), 0x7FFFFFE0)
#: Bodies behind the common header, by frame type; 0 = PAD, 4 = ERR, 7 = RES, 0xFFFF = EXT.
BODIES = {
    0: "<iiiiq", 1: "<iiiiq", 2: "<iiiii", 3: "<iiiiiq", 4: "<iiqqii", 5: "<iiiiiiii",
    6: "<iiqqq", 7: "<iii", 8: "<iii", 0xFFFF: "<qqq", 0x55: "<iiii",
}  # fmt: skip


class Attacker:
    """Makes datagrams that nobody should believe.  Those of the stream itself carry positions that
    cannot be: nothing protects a stream from a forger of well-formed data, and no test says so."""

    def __init__(self, publication: Publication, seed: int) -> None:
        self._random = random.Random(seed)
        self._session = publication.session_id
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sent = 0

    def close(self) -> None:
        self._socket.close()

    def attack(self, target: tuple[str, int], count: int) -> None:
        for _ in range(count):
            self._socket.sendto(self._datagram(), target)
            self.sent += 1

    def _number(self, kind: str) -> int:
        wide = self._random.random() < 0.5
        bits = 64 if kind == "q" else 32
        return self._random.getrandbits(bits) - 2 ** (bits - 1) if wide else self._edge()

    def _edge(self) -> int:
        return self._random.choice(EDGES)

    def _datagram(self) -> bytes:
        dice = self._random.random()
        if dice < 0.2:
            return self._random.randbytes(self._random.randrange(1500))
        frame_type = self._random.choice(list(BODIES))
        body = self._body(frame_type)
        length = 8 + len(body)
        if dice < 0.5:                              # a length that is not the frame's
            length = self._edge()
        version = 0 if self._random.random() < 0.9 else self._random.randrange(256)
        flags = self._random.randrange(256)
        frame = struct.pack("<iBBH", length, version, flags, frame_type) + body
        cut = self._random.randrange(len(frame)) if dice > 0.9 else len(frame)
        return frame[:cut] + self._random.randbytes(self._random.choice((0, 0, 1, 64)))

    def _body(self, frame_type: int) -> bytes:
        layout = BODIES[frame_type]
        numbers = [self._number(kind) for kind in layout[1:]]
        if frame_type in (0, 1):                    # never in the window: below any term
            numbers[0] = self._random.choice((-32, 1, 33, TERM, TERM + 32, -(2**31)))
            numbers[1:3] = self._session, STREAM
        elif frame_type in (2, 3, 5, 6):
            at = 0 if frame_type in (2, 3, 6) else 1
            numbers[at : at + 2] = self._session, STREAM
        if frame_type == 5:
            numbers[5] = self._random.choice((0, -1, 65537, 2**30 + 1, 2**31 - 1))
        return struct.pack(layout, *numbers)


def invalid(host: PenstockHost) -> int:
    with penstock.connect(host.directory) as client:
        return client.counters[INVALID_PACKETS]


@pytest.mark.parametrize("kind", ["unicast", "dynamic"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_transfer_under_attack_is_exact(
    client: Client, remote: Client, host: PenstockHost, peer: PenstockHost, port: Port, seed: int,
    kind: str,
) -> None:
    number, control = port(), port()
    near = far = f"aeron:udp?endpoint=127.0.0.1:{number}|term-length=64k"
    if kind == "dynamic":       # its control socket hears everybody; a unicast sender's its peer
        near = f"aeron:udp?control=127.0.0.1:{control}|control-mode=dynamic|term-length=64k"
        far = f"{near}|endpoint=127.0.0.1:{number}"
    before = invalid(host), invalid(peer)
    with (
        remote.add_subscription(far, STREAM) as subscription,
        client.add_publication(near, STREAM) as publication,
    ):
        connected(publication, subscription)
        source = subscription.images[0].source_identity.rpartition(":")
        attacker = Attacker(publication, seed)
        sent = messages(4000, 300)
        received: list[bytes] = []
        for first in range(0, len(sent), 100):
            attacker.attack(("127.0.0.1", number), 25)
            attacker.attack((source[0], int(source[2])), 25)
            (got,) = pump(publication, sent[first : first + 100], [subscription])
            received += got
        attacker.close()
        assert received == sent
        assert len(subscription.images) == 1
        assert publication.send(b"still here", TIMEOUT_S) > 0
    assert client.status()["pid"] == host.pid
    assert remote.status()["pid"] == peer.pid
    risen = invalid(host) - before[0], invalid(peer) - before[1]
    assert risen[1] > attacker.sent // 10
    assert kind == "unicast" or risen[0] > attacker.sent // 10
