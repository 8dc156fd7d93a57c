# SPDX-License-Identifier: Apache-2.0
"""A publisher and a subscriber with credits, in each medium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support.hosts import PenstockHost

import penstock
from loopback.streams import connected, eventually
from penstock import Offer, Publication, Subscription

STREAM = 1001
MEDIA = ("ipc", "unicast", "multicast")


class Pair:
    """A publication, and the means to subscribe to it with credits."""

    def __init__(self, near: PenstockHost, far: PenstockHost, channel: str) -> None:
        self.sender = penstock.connect(near.directory, name="sender")
        self.receiver = penstock.connect(far.directory, name="receiver")
        self.channel = channel

    def open(self, credits: penstock.client._credit_options.CreditsGiven, *,
             exclusive: bool = False) -> tuple[Publication, Subscription]:
        subscription = self.receiver.add_subscription(self.channel, STREAM, credits=credits)
        add = (self.sender.add_exclusive_publication if exclusive
               else self.sender.add_publication)
        publication = add(self.channel, STREAM)
        connected(publication, subscription)
        eventually(lambda: publication.credits.granted > 0, "no grant arrived")
        return publication, subscription


@contextmanager
def opened(
    medium: str, host: PenstockHost, peer: PenstockHost, port: Callable[[], int]
) -> Iterator[Pair]:
    """Connect a publisher to ``host``, and a subscriber to ``peer`` or, with IPC, to ``host``."""
    channel = {
        "ipc": "aeron:ipc?term-length=64k",
        "unicast": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k",
        "multicast": f"aeron:udp?endpoint=239.20.0.9:{port()}|interface=127.0.0.1|term-length=64k",
    }[medium]
    made = Pair(host, host if medium == "ipc" else peer, channel)
    yield made
    made.sender.close()
    made.receiver.close()


def offered(publication: Publication, most: int) -> int:
    """Offer until a refusal; return the number of accepted messages."""
    for number in range(most):
        position = publication.offer(b"%d" % number)
        while position == Offer.ADMIN_ACTION:
            position = publication.offer(b"%d" % number)
        if position < 0:
            assert position == Offer.NO_CREDIT, Offer(position)
            return number
    return most
