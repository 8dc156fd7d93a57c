# SPDX-License-Identifier: Apache-2.0
"""Publishers, readers and daemons with credits that are killed at drawn points.

What is compared is the whole ledger: every credit that was granted is spent or available, and every
credit that was spent is returned.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import attrs
import pytest
from support.hosts import PenstockHost
from support.patience import Patience
from support.processes import Peer

import penstock
from loopback.conftest import NewHost
from loopback.streams import TIMEOUT_S, connected, eventually
from penstock import Client, Offer, Publication, Subscription

STREAM = 1001
NUMBER = 8
KILLS = 4

PUBLISHER = """
import sys
import penstock
client = penstock.connect(sys.argv[1], name="mortal")
publication = client.add_publication(sys.argv[2], int(sys.argv[3]))
print('{"event": "ready"}', flush=True)
while True:
    publication.send(b"mortal")
"""
READER = """
import sys
import penstock
client = penstock.connect(sys.argv[1], name="mortal")
subscription = client.add_subscription(
    sys.argv[2], int(sys.argv[3]), credits=penstock.Credits(3, handles=True)
)
while not subscription.is_connected:        # a message that is sent before is not for this reader
    pass
print('{"event": "ready"}', flush=True)
held = []
while True:
    message = subscription.recv()
    held.append(message)
    print('{"event": "held"}', flush=True)
    if len(held) == 3:
        held.pop(0).credit.release()
"""


@attrs.frozen(kw_only=True)
class Stream:
    """A stream of two clients, whose daemons a test may kill."""

    near: PenstockHost
    far: PenstockHost
    channel: str
    publication: Publication
    subscription: Subscription
    seen: list[object] = attrs.field(factory=list)

    def read(self) -> int:
        return self.subscription.poll(lambda _m, _h: None, 64)

    def run(self, host: PenstockHost, program: str) -> Peer:
        peer = host.run("-c", program, str(host.directory), self.channel, str(STREAM))
        peer.wait("ready")
        return peer

    def is_balanced(self) -> bool:
        """Whether all that was granted is spent or available, and all that was spent is back."""
        while self.read():
            pass
        spent, reader = self.publication.credits, self.subscription.credits
        self.seen[:] = [spent, reader]
        return (
            spent.available == NUMBER and spent.granted == reader.granted
            and spent.spent == reader.returned and reader.granted - reader.returned == NUMBER
        )

    def check(self) -> None:
        """Check the ledger, and that as many messages as credits are accepted."""
        patience = Patience(TIMEOUT_S)
        while not self.is_balanced():
            assert not patience.is_over, f"credits are missing: {self.seen}"
            time.sleep(0.01)
        accepted = 0
        patience = Patience(TIMEOUT_S)
        while (code := self.publication.offer(b"survivor")) != Offer.NO_CREDIT:
            accepted += code > 0
            assert not patience.is_over, f"{Offer(code)} instead of NO_CREDIT"
        assert accepted == NUMBER
        eventually(self.is_balanced, "credits do not return")


@pytest.fixture(params=["ipc", "unicast"])
def stream(
    request: pytest.FixtureRequest, new_host: NewHost, port: Callable[[], int]
) -> Iterator[Stream]:
    near = new_host()
    far = near if request.param == "ipc" else new_host()
    channel = "aeron:ipc?term-length=64k" if request.param == "ipc" else \
        f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with penstock.connect(near.directory, name="sender") as sender, \
            penstock.connect(far.directory, name="receiver") as receiver:
        yield _open(near, far, channel, sender, receiver)


def _open(
    near: PenstockHost, far: PenstockHost, channel: str, sender: Client, receiver: Client
) -> Stream:
    subscription = receiver.add_subscription(channel, STREAM, credits=NUMBER)
    publication = sender.add_publication(channel, STREAM)
    connected(publication, subscription)
    eventually(lambda: publication.credits.granted > 0, "no grant arrived")
    return Stream(near=near, far=far, channel=channel, publication=publication,
                  subscription=subscription)


def kill(peer: Peer) -> None:
    peer.process.kill()
    peer.process.wait()


def test_a_killed_publisher_takes_no_credit_along(stream: Stream) -> None:
    drawn = random.Random(13)
    for _ in range(KILLS):
        victim = stream.run(stream.near, PUBLISHER)
        wanted = drawn.randrange(1, 2000)
        got = 0
        patience = Patience(TIMEOUT_S)
        while got < wanted:
            got += stream.read()
            assert not patience.is_over, f"{got} of {wanted} messages came"
        kill(victim)
        stream.check()


def test_a_killed_reader_holds_no_credit_back(stream: Stream) -> None:
    drawn = random.Random(14)
    for _ in range(KILLS):
        victim = stream.run(stream.far, READER)
        for _ in range(drawn.randrange(1, 6)):
            eventually(lambda: stream.publication.offer(b"held") > 0, "no credit")
            while stream.read():
                pass
            victim.wait("held")
        kill(victim)
        stream.check()


@pytest.mark.parametrize("victim", ["near", "far"])
def test_a_killed_daemon_grants_nothing_twice(stream: Stream, victim: str) -> None:
    drawn = random.Random(15)
    accepted = 0
    for _ in range(KILLS):
        for _ in range(drawn.randrange(1, 400)):
            accepted += stream.publication.offer(b"before") > 0
            if drawn.random() < 0.3:
                stream.read()
        host: PenstockHost = getattr(stream, victim)
        host.kill()
        before = stream.publication.credits
        late = sum(stream.publication.offer(b"without a daemon") > 0 for _ in range(3 * NUMBER))
        assert late <= before.available
        host.start()
        stream.check()
    assert accepted > 0
