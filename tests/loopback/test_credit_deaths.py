# SPDX-License-Identifier: Apache-2.0
"""All consumers that grant credits die: without credit no message is accepted, at any moment.

A consumer keeps the credit of each message that it receives. So from its first grant until
``NOT_CONNECTED``, no more messages are accepted than the consumers granted.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from support.hosts import PenstockHost
from support.patience import Patience
from support.processes import Peer

import penstock
from loopback.conftest import NewHost
from loopback.streams import PASSING, TIMEOUT_S, eventually
from penstock import Offer, Publication

STREAM = 1001
#: Of a consumer, in turn: with one, a credit that is not returned stops the stream.
GRANTED = (1, 3)
#: Without credit, without a consumer, and while there is no daemon.
REFUSED = (Offer.NO_CREDIT, Offer.NOT_CONNECTED, Offer.DAEMON_AWAY)
#: A host that says nothing for so long has gone.
CONFIG = """
[timeouts]
connection_timeout_ns = "1s"
image_liveness_timeout_ns = "1s"
idle_heartbeat_interval_ns = "200ms"
"""

CONSUMER = """
import sys
import threading
import penstock
directory, channel, stream, number = sys.argv[1:]
client = penstock.connect(directory, name="mortal")
credits = penstock.Credits(int(number), handles=True) if int(number) else None
subscription = client.add_subscription(channel, int(stream), credits=credits)
closes = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), closes.set()), daemon=True).start()
print('{"event": "ready"}', flush=True)
held = []
while not closes.is_set():
    try:
        message = subscription.recv(0.01)
    except penstock.TimeoutExpired:
        continue
    if credits:
        held.append(message)
subscription.close()
print('{"event": "closed"}', flush=True)
"""


@attrs.define(kw_only=True)
class Record:
    """The codes of a publisher, in order: each with the number of offers that got it."""

    publication: Publication
    codes: list[tuple[str, int]] = attrs.field(factory=list)

    def offer(self) -> int:
        position: int = self.publication.offer(b"message")
        name = "accepted" if position > 0 else Offer(position).name
        last, count = self.codes[-1] if self.codes else ("", 0)
        if name == last:
            self.codes[-1] = name, count + 1
        else:
            self.codes.append((name, 1))
        assert position > 0 or position in (*PASSING, *REFUSED)
        return position

    def until(self, wanted: Callable[[int], bool], what: str) -> None:
        patience = Patience(TIMEOUT_S)
        while not wanted(self.offer()):
            assert not patience.is_over, f"{what}: {self.codes[-8:]}"

    def during(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.offer()

    @property
    def accepted(self) -> int:
        return sum(count for name, count in self.codes if name == "accepted")


@attrs.frozen(kw_only=True)
class World:
    """A publisher's host and its consumers' hosts."""

    near: PenstockHost
    far: tuple[PenstockHost, ...]
    arguments: tuple[str, ...]
    publication: Publication
    channel: str

    def consumer(self, host: PenstockHost, credits: int) -> Peer:
        peer = host.run("-c", CONSUMER, str(host.directory), self.channel, str(STREAM),
                        str(credits))
        peer.wait("ready")
        return peer


@pytest.fixture(params=["ipc", "spy", "unicast", "multicast", "mdc"])
def world(
    request: pytest.FixtureRequest, new_host: NewHost, port: Callable[[], int], tmp_path: Path
) -> Iterator[World]:
    config = tmp_path / "penstock.toml"
    config.write_text(CONFIG)
    medium: str = request.param
    arguments = ("--config", str(config))
    number = {"ipc": 1, "spy": 1, "unicast": 2}.get(medium, 3)
    hosts = [new_host(*arguments) for _ in range(number)]
    unicast = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    control = f"aeron:udp?control=127.0.0.1:{port()}|control-mode=dynamic"
    group = f"aeron:udp?endpoint=239.20.0.13:{port()}|interface=127.0.0.1|term-length=64k"
    sends, reads = {
        "ipc": ("aeron:ipc?term-length=64k",) * 2,
        "spy": (f"{unicast}|ssc=true", f"aeron-spy:{unicast}"),
        "unicast": (unicast,) * 2,
        "multicast": (group,) * 2,
        "mdc": (f"{control}|term-length=64k", f"{control}|endpoint=127.0.0.1:0"),
    }[medium]
    with penstock.connect(hosts[0].directory, name="sender") as sender, \
            sender.add_publication(sends, STREAM) as publication:
        yield World(near=hosts[0], far=tuple(hosts[1:] or hosts), arguments=arguments,
                    publication=publication, channel=reads)


def end(world: World, way: str, consumers: list[Peer]) -> None:
    """End all consumers, in the given way."""
    if way == "daemon":
        for host in world.far:
            host.kill()
    for consumer in consumers:
        if way == "closed":
            consumer.say()
        else:
            consumer.process.kill()


def check_ends(world: World, way: str, number: int) -> None:
    """Consumers come and end in turn; no message is accepted beyond what they grant."""
    drawn = random.Random(13)
    for credits in GRANTED:
        record = Record(publication=world.publication)
        with contextlib.ExitStack() as stack:
            consumers = []
            for n in range(number):
                consumers.append(world.consumer(world.far[n % len(world.far)], credits))
                stack.callback(consumers[-1].stop)
            record.until(lambda code: code > 0, "no credit of a new consumer")
            record.during(drawn.uniform(0, 0.2))
            end(world, way, consumers)
            record.until(lambda code: code == Offer.NOT_CONNECTED, "no end of the consumers")
            record.during(0.1)
            assert record.accepted <= number * credits, record.codes
        for host in world.far if way == "daemon" else ():
            host.start(*world.arguments)


@pytest.mark.parametrize("way", ["client", "closed"])
def test_nothing_is_accepted_without_credit_when_all_consumers_end(
    world: World, way: str
) -> None:
    check_ends(world, way, 2)


@pytest.mark.parametrize("world", ["unicast", "multicast", "mdc"], indirect=True)
def test_nothing_is_accepted_without_credit_when_the_daemon_of_all_consumers_dies(
    world: World
) -> None:
    check_ends(world, "daemon", 1)


def test_a_reader_without_credits_continues_alone(world: World) -> None:
    """The consumer with credits is killed; the reader beside it grants nothing, and reads on."""
    record = Record(publication=world.publication)
    with world.consumer(world.far[0], 3) as mortal, world.consumer(world.far[-1], 0):
        record.until(lambda code: code == Offer.NO_CREDIT, "no limit")
        before = record.accepted
        assert before >= 3
        record.during(0.1)
        assert record.accepted - before <= 3, record.codes
        mortal.process.kill()
        eventually(lambda: record.offer() > 0 and record.accepted > 100, "still limited")


def test_a_new_daemon_of_the_publisher_lifts_no_limit(world: World) -> None:
    """Consumer and publisher's daemon are killed together. The next consumer may get up to three
    messages that the first daemon did not send, and keeps their credits, too."""
    record = Record(publication=world.publication)
    with world.consumer(world.far[0], 3) as mortal:
        record.until(lambda code: code == Offer.NO_CREDIT, "no limit")
        mortal.process.kill()
        world.near.kill()
        record.during(0.1)
        world.near.start(*world.arguments)
        record.until(lambda code: code == Offer.NOT_CONNECTED, "no end of the consumer")
        record.during(0.1)
        assert record.accepted <= 3, record.codes
    with world.consumer(world.far[0], 8):
        record.until(lambda code: code > 0, "no credit of a new consumer")
