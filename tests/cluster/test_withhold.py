# SPDX-License-Identifier: Apache-2.0
"""Credits that are withheld between three hosts, of a network that loses 3 % of the datagrams."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from cluster.network import Network
from penstock import Offer, Publication, Subscription

pytestmark = pytest.mark.needs_root

STREAM = 1001
NUMBER = 16
ROUNDS = 10
TIMEOUT_S = 60.0


class Reader:
    """A subscription, and all that it delivered."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.got: list[bytes] = []

    def take(self, message: penstock.Message, _header: object) -> None:
        self.got.append(bytes(message))

    def poll(self) -> None:
        self.subscription.poll(self.take)


def offer(publication: Publication, sent: list[bytes]) -> None:
    """Offer the next message once."""
    message = b"%d" % len(sent)
    code = publication.offer(message)
    assert code > 0 or code in (Offer.NO_CREDIT, Offer.ADMIN_ACTION, Offer.BACK_PRESSURED), code
    sent += [message] * (code > 0)


@pytest.mark.parametrize("medium", ["multicast", "mdc"])
def test_after_withhold_nothing_is_in_flight_to_either_host(
    medium: str, lan: Network, start: Callable[..., PenstockHost]
) -> None:
    hosts = [start(number, "--impair", f"loss=3%,seed={number + 5}") for number in range(3)]
    group = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.77.0.0/24"
    control = f"control={lan.address(0)}:40456|control-mode=dynamic"
    channels = [group] * 3 if medium == "multicast" else [
        f"aeron:udp?{control}",
        *(f"aeron:udp?endpoint={lan.address(number)}:40457|{control}" for number in (1, 2)),
    ]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(penstock.connect(host.directory)) for host in hosts]
        readers = [
            Reader(client.add_subscription(channel, STREAM, credits=NUMBER))
            for client, channel in zip(clients[1:], channels[1:], strict=True)
        ]
        publication = clients[0].add_publication(f"{channels[0]}|fc=min,g:/2", STREAM)
        patience = Patience(TIMEOUT_S)
        while not (publication.is_connected and publication.credits.is_granted):
            assert not patience.is_over, "no credit"
        sent: list[bytes] = []
        for number in range(ROUNDS):
            wanted = len(sent) + 10 * NUMBER + number
            patience = Patience(TIMEOUT_S)
            while len(sent) < wanted:
                offer(publication, sent)
                for reader in readers:
                    reader.poll()
                assert not patience.is_over, f"{len(sent)} of {wanted} messages were accepted"
            for reader in readers:
                reader.subscription.withhold(TIMEOUT_S, reader.take)
                assert reader.got == sent
                assert publication.offer(b"withheld") == Offer.NO_CREDIT
            for reader in readers:
                reader.poll()
                assert reader.got == sent
                reader.subscription.resume()
